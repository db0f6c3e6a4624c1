"""The whole project on one machine that has nothing but Python: real servers from packages, started and stopped.

``python -m tests.tools run`` is ``make run``; ``python -m tests.tools with CMD`` runs a command beside servers
of its own. Nothing of this is used where the service's variables point at real servers.
"""


class Unready(Exception):
    """An obstacle that the person at the keyboard must remove before this can start; the text is for them."""
