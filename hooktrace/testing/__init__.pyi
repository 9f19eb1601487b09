from .check import CheckResult as CheckResult
from .check import check_hook as check_hook
from .fakes import FakeBucket as FakeBucket
from .fakes import FakeClock as FakeClock
