"""Names of devices, read from what they say of themselves: "Chrome on Windows", "Shell 4.8.2 on Windows 11".

The table is our own. The known libraries bring thousands of patterns that have to be renewed, to distinguish models;
an operator distinguishes a few devices, by browser and system, and the raw text is beside the name.
"""

import re

# The first that is found counts: most browsers also name those that they descend from.
BROWSERS = (
    ("Edge", "Edg"), ("Opera", "OPR/"), ("Vivaldi", "Vivaldi"), ("Samsung Internet", "SamsungBrowser"),
    ("Firefox", "Firefox/"), ("Firefox", "FxiOS"), ("Chrome", "CriOS"), ("Chrome", "Chrome/"), ("Safari", "Safari/"),
)  # fmt: skip
SYSTEMS = (
    ("Windows", "Windows"), ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("ChromeOS", "CrOS"),
    ("macOS", "Mac OS X"), ("Linux", "Linux"),
)  # fmt: skip
# A shell says ``Shell/4.8.2 (Windows 11)``, with anything behind it.
SHELL = re.compile(r"Shell/([\w.+-]{1,40})(?: \(([\w .+-]{1,40})[);])?")
# Names of systems that a shell writes as browsers do.
AS_BROWSERS = {"Macintosh": "Mac", "Windows NT 10.0": "Windows", "X11": "Linux"}
# Devices, unlike systems, have an article in a sentence.
DEVICE = re.compile(r"(?<= on )(?=(Mac|iPhone|iPad)\b)")


def device_name(agent: str) -> str:
    """The browser or shell of a ``User-Agent``, and its system; "" for one that says neither."""
    version, system = shell_of(agent)
    name = f"Shell {version}" if version else _first(BROWSERS, agent)
    return " on ".join(filter(None, (name, system)))


def shell_of(agent: str) -> tuple[str, str]:
    """The version of the shell of a ``User-Agent``, "" for a browser, and the system; "" for what it does not say."""
    shell = SHELL.match(agent)
    version, said = (shell[1], shell[2] or "") if shell else ("", "")
    return version, AS_BROWSERS.get(said, said) or _first(SYSTEMS, agent)


def in_a_sentence(name: str) -> str:
    """The name of a device as a sentence has it: "Safari on an iPhone"."""
    return DEVICE.sub(lambda found: "a " if found[1] == "Mac" else "an ", name)


def _first(names: tuple[tuple[str, str], ...], agent: str) -> str:
    return next((name for name, sign in names if sign in agent), "")
