"""What a token of a caller says."""

from accounts.sessions.authentication import Claimed
from licensing.callers import Caller


def claimed(caller: Caller) -> Claimed:
    return Claimed(caller.user_id, caller.session_id, caller.epoch)
