import time
from tests.served.shell import *
from tests.served.test_streams import *
def test_x(brisk_shell, provider, database, person):
    for i in range(2):
        t=time.monotonic()
        with brisk_shell.stream(stand_in("tokens=9 fault=stall after=3")) as stream:
            for b in stream: print(round(time.monotonic()-t,2), b[:30])
        print("left", time.monotonic()-t)
        provider.wait_for(lambda stats: stats["streams_open"] == 0)
        print("provider", time.monotonic()-t)
