"""The public names, in the one place where they are listed."""

from . import fsdp as fsdp
from . import hooks as hooks
from .analysis.frames import Run as Run
from .analysis.frames import load as load
from .commands.top.debug_page import DebugPage as DebugPage
from .records.anomalies import AnomalyRecord as AnomalyRecord
from .records.bucket import AssignmentRecord as AssignmentRecord
from .records.bucket import BucketLayout as BucketLayout
from .records.bucket import BucketRecord as BucketRecord
from .records.bucket import DeviceSpan as DeviceSpan
from .records.bucket import Stage as Stage
from .records.errors import AnomalyError as AnomalyError
from .records.errors import HookError as HookError
from .records.run import RunInfo as RunInfo
from .records.step import StepRecord as StepRecord
from .staging.collectives import AllGather as AllGather
from .staging.collectives import AllReduce as AllReduce
from .staging.collectives import AllToAll as AllToAll
from .staging.collectives import Broadcast as Broadcast
from .staging.collectives import Operation as Operation
from .staging.collectives import ReduceScatter as ReduceScatter
from .staging.groups import group_of as group_of
from .staging.hook import StagedHook as StagedHook
from .staging.hook import staged as staged
from .staging.job import shutdown as shutdown
from .tracing.trace import instrument as instrument
from .tracing.trace import trace as trace
from .tracing.traced_hook import TracedHook as TracedHook
from .tracing.tracer import Tracer as Tracer
from .tracing.tracer import default_tracer as default_tracer

__version__: str
