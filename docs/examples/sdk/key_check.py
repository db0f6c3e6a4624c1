"""Tells personal keys from other text, without asking the service. Candidates match this pattern:

sk-shell-[a-z2-7]{58}
"""

import base64
import sys
import zlib

raw = base64.b32decode(sys.argv[1].removeprefix("sk-shell-").upper() + "======")
print("a key" if zlib.crc32(raw[:32]).to_bytes(4, "big") == raw[32:] else "no key")
