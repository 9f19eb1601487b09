"""What is known: one declaration a record, and the arithmetic, tables and files of records.

    stamps of capture --tracing--> records --> exporters, files, analysis

    bucket, step, skew, run    the kinds of records, each declared once; base: what they share
    compression_error          what a hook lost of a bucket
    anomalies    what went wrong in a hook, and the one table of what can
    hang         ranks that wait for others, and the one table of why
    job          one step over all ranks
    other        collectives that belong to no bucket
    intervals    exposed, busy, queue, bandwidth: the one place where these words get their meaning
    metrics      the one table of metrics
    addresses    where the docs explain a finding, an anomaly or a hang
    losses       why records are lost: the one table of reasons
    last_used    dictionaries with a bound
    summary      percentiles of kept records
    units        numbers as people read them: ms, MB, percent
    errors       what hooktrace raises

    codec, lines          records to lines of a record file and back; what only files have
    reader                files to records, whatever is in them; what is said of the rest
    content, files        what was read; the files' names

What enters are integers and names; what leaves are frozen values with integer nanoseconds and
bytes.  Nothing here imports torch.
"""

from __future__ import annotations

from .anomalies import AnomalyRecord as AnomalyRecord
from .bucket import STAGES as STAGES
from .bucket import UNIT_KINDS as UNIT_KINDS
from .bucket import AssignmentRecord as AssignmentRecord
from .bucket import BucketLayout as BucketLayout
from .bucket import BucketRecord as BucketRecord
from .bucket import ClockKind as ClockKind
from .bucket import DeviceSpan as DeviceSpan
from .bucket import Members as Members
from .bucket import Options as Options
from .bucket import Parameter as Parameter
from .bucket import Stage as Stage
from .bucket import StageName as StageName
from .bucket import Transfer as Transfer
from .bucket import Unit as Unit
from .compression_error import ErrorRecord as ErrorRecord
from .compression_error import ParameterError as ParameterError
from .hang import HangRecord as HangRecord
from .hang import RankStacks as RankStacks
from .job import JobStepRecord as JobStepRecord
from .job import StepSpread as StepSpread
from .other import OtherCollective as OtherCollective
from .other import OtherCollectives as OtherCollectives
from .run import CLOCK_DRIFT as CLOCK_DRIFT
from .run import SCHEMA_VERSION as SCHEMA_VERSION
from .run import ClockRecord as ClockRecord
from .run import RunInfo as RunInfo
from .skew import SkewRecord as SkewRecord
from .skew import late_rank as late_rank
from .step import Batch as Batch
from .step import CompletedStep as CompletedStep
from .step import StepRecord as StepRecord
