"""Ends of calls as the console shows them."""

from config.console.tables import Chip
from usage.models import UsageRecord

End = UsageRecord.End
ENDS: dict[str, Chip] = {
    End.DONE: Chip("well", "Done"),
    End.CLIENT_GONE: Chip("watch", "Disconnected"),
    End.PROVIDER_FAILED: Chip("stopped", "Failed"),
    End.UNREAD: Chip("stopped", "Unreadable"),
    End.TIMEOUT: Chip("stopped", "Timed out"),
    End.STOPPED: Chip("stopped", "Stopped"),
    End.CRASHED: Chip("stopped", "Worker died"),
}
