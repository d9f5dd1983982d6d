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

#: Calls that take memory from the driver, or give it back. A free waits until the device has done everything.
ALLOCATING = re.compile(
    r"(cuda|hip)(Malloc|ExtMalloc)|(cuda|hip)Host(Alloc|Malloc|Register)"
    r"|cuMem(Alloc|Host|Create|Map|SetAccess|AddressReserve)"
    r"|(cuda|hip)(Free(?!ze)|HostFree|HostUnregister)|cuMem(Free|Release|Unmap|AddressFree)"
)

#: Calls that load a kernel's code: it was just compiled, or runs for the first time.
LOADING_CODE = re.compile(r"(cu|hip)(ModuleLoad|LibraryLoad)|cudaLibraryLoad")
