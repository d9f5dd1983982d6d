"""What runtime and driver calls mean to the host, by name: CUDA's beside HIP's.

The patterns match at the name's begin. Extending a family is a line.
"""

import re

#: Calls that return when the device has done something.
SYNCHRONISING = re.compile(
    r"(cuda|hip|cu)(Device|Ctx|Stream|Event)Synchronize"
    r"|(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|WithStream|DtoH|HtoD|DtoD)?(_ptds|_spt|_v\d+)?$"
    r"|cuMemcpy(DtoH|HtoD|DtoD|2D|3D)?(_v2)?(_ptds)?$"
)

#: Copies that need not wait, and do where the host's memory is pageable or the device's queue is full.
ASYNCHRONOUS_COPY = re.compile(r"(cuda|hip|cu)Mem(cpy|set)\w*Async")
