"""Names of devices from what they say of themselves."""

import pytest

from accounts.device_names import device_name, in_a_sentence

WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/131.0.0.0 Safari/537.36"
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/17.4 Safari/605.1.15"
PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) CriOS/131.0 Mobile/15E148 Safari/604.1"
)
ANDROID = (
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) SamsungBrowser/23.0 Chrome/115.0 Mobile Safari/537.36"
)


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (WINDOWS, "Chrome on Windows"),
        (f"{WINDOWS} Edg/131.0.0.0", "Edge on Windows"),
        (f"{WINDOWS} OPR/115.0", "Opera on Windows"),
        (MAC, "Safari on macOS"),
        (PHONE, "Chrome on iPhone"),
        (ANDROID, "Samsung Internet on Android"),
        ("Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0", "Firefox on Linux"),
        ("Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) Chrome/131.0 Safari/537.36", "Chrome on ChromeOS"),
        ("Shell/4.8.2 (Windows 11)", "Shell 4.8.2 on Windows 11"),
        ("Shell/4.8.2 (macOS 15.1; arm64) tauri/2.1", "Shell 4.8.2 on macOS 15.1"),
        ("Shell/5.0.0-beta.1 tauri/2 Linux", "Shell 5.0.0-beta.1 on Linux"),
        ("Shell/4.8.1 (Macintosh; Intel Mac OS X 10_15_7)", "Shell 4.8.1 on Mac"),
        ("Shell/4.8.1 (Macintosh)", "Shell 4.8.1 on Mac"),
        ("Shell/4.8.1 (Windows NT 10.0; Win64; x64)", "Shell 4.8.1 on Windows"),
        ("Shell/4.8.1 (X11; Linux x86_64)", "Shell 4.8.1 on Linux"),
        ("Shell/5.0.0", "Shell 5.0.0"),
        ("python-requests/2.32", ""),
        ("", ""),
        ("Shell/<script> (x)", ""),
    ],
)  # fmt: skip
def test_a_device_is_named_as_a_person_would(agent: str, name: str) -> None:
    assert device_name(agent) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Shell 4.8.1 on Mac", "Shell 4.8.1 on a Mac"),
        ("Chrome on iPhone", "Chrome on an iPhone"),
        ("Safari on iPad", "Safari on an iPad"),
        ("Safari on macOS", "Safari on macOS"),
        ("Shell 4.8.2 on macOS 15.1", "Shell 4.8.2 on macOS 15.1"),
        ("Chrome on Windows", "Chrome on Windows"),
        ("mac", "mac"),
        ("", ""),
    ],
)
def test_a_sentence_gives_a_device_its_article(name: str, said: str) -> None:
    assert in_a_sentence(name) == said
