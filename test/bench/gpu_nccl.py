"""NCCL on one GPU, with the calls that the runtime makes: messages of a rank to itself, queued and recorded as a graph.

Usage: gpu_nccl.py [FOLDER ...], where libraries are looked for first

A line of JSON says for each thing whether it was right, or what failed; {"left out": why} without NCCL or a device. It is
there before the communicator is given back, which may wait for what has failed.
"""
import ctypes
import json
import os
import sys
import time
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

BYTES, FLOAT, SUM = 1, 7, 0  # ncclUint8, ncclFloat32, ncclSum
RELAXED, NON_BLOCKING = 2, 1  # of recording, of a stream
NOT_READY = 600
COUNT = 1 << 20
PATIENCE = 10  # seconds


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", c_ubyte * 128)]


class LeftOut(Exception):
    pass


def load(folders, name):
    error = None
    for path in [os.path.join(folder, name) for folder in folders] + [name]:
        try:
            return ctypes.CDLL(path)
        except OSError as why:
            error = why
    raise LeftOut(str(error))


class StandsStill(RuntimeError):
    """What is queued has not run, and so will nothing behind it."""


class Library:
    """Functions whose results are looked at."""

    def __init__(self, folders, name):
        self.library = load(folders, name)

    def __getattr__(self, name):
        def checked(*arguments):
            result = getattr(self.library, name)(*arguments)
            if result:
                raise RuntimeError("%s returned %d" % (name, result))
        return checked


def stream_of(cuda):
    """A stream of the first device, whose context is current from now on."""
    count, device, context, stream = c_int(), c_int(), c_void_p(), c_void_p()
    try:
        cuda.cuInit(0)
        cuda.cuDeviceGetCount(byref(count))
    except RuntimeError as error:
        raise LeftOut("no device: %s" % error) from None
    if not count.value:
        raise LeftOut("no device")
    cuda.cuDeviceGet(byref(device), 0)
    cuda.cuDevicePrimaryCtxRetain(byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuStreamCreateWithPriority(byref(stream), NON_BLOCKING, 0)
    return stream


def wait(cuda, stream):
    end = time.monotonic() + PATIENCE
    while True:
        result = cuda.library.cuStreamQuery(stream)
        if result == 0:
            return
        if result != NOT_READY:
            raise RuntimeError("cuStreamQuery: %d" % result)
        if time.monotonic() > end:
            raise StandsStill("the stream stands still")
        time.sleep(0.001)


def tell(found):
    print(json.dumps(found), flush=True)


def check(cuda, nccl):
    stream, communicator, unique = stream_of(cuda), c_void_p(), UniqueId()
    found = {}
    nccl.ncclGetUniqueId(byref(unique))
    nccl.ncclCommInitRank(byref(communicator), 1, unique, 0)
    # Any bytes are good, but numbers are added: 1.0 is 3f 80 00 00.
    wanted = (b"\x00\x00\x80\x3f" * 3 + b"\x00\x00\x00\x40") * (COUNT // 16)
    source, target, back = c_uint64(), c_uint64(), ctypes.create_string_buffer(COUNT)
    for memory in (source, target):
        cuda.cuMemAlloc_v2(byref(memory), c_size_t(COUNT))
    cuda.cuMemcpyHtoDAsync_v2(source, wanted, c_size_t(COUNT), stream)

    def send():
        nccl.ncclGroupStart()
        nccl.ncclSend(c_void_p(source.value), c_size_t(COUNT), BYTES, 0, communicator, stream)
        nccl.ncclRecv(c_void_p(target.value), c_size_t(COUNT), BYTES, 0, communicator, stream)
        nccl.ncclGroupEnd()

    def reduce():
        nccl.ncclAllReduce(c_void_p(source.value), c_void_p(target.value), c_size_t(COUNT // 4), FLOAT, SUM, communicator,
                           stream)

    def is_right(work):
        cuda.cuMemsetD8Async(target, c_uint(0xff), c_size_t(COUNT), stream)
        work()
        cuda.cuMemcpyDtoHAsync_v2(back, target, c_size_t(COUNT), stream)
        wait(cuda, stream)
        return back.raw == wanted

    def recorded(work):
        graph, ready = c_void_p(), c_void_p()
        cuda.cuStreamBeginCapture_v2(stream, RELAXED)
        try:
            work()
        finally:
            result = cuda.library.cuStreamEndCapture(stream, byref(graph))
        if result:
            raise RuntimeError("cuStreamEndCapture returned %d" % result)
        # A communicator ends when no graph has its messages any more, also where one of them has failed.
        try:
            cuda.cuGraphInstantiateWithFlags(byref(ready), graph, c_uint64(0))
            # The second time it is replayed with nothing new.
            return all(is_right(lambda: cuda.cuGraphLaunch(ready, stream)) for _ in range(2))
        finally:
            if ready:
                cuda.library.cuGraphExecDestroy(ready)
            cuda.library.cuGraphDestroy(graph)
    try:
        for name, work in (("send and receive", send), ("all-reduce", reduce)):
            for how, check_ in (("", is_right), (", recorded", recorded)):
                try:
                    found[name + how] = check_(work)
                except RuntimeError as error:
                    found[name + how] = str(error)
                    if isinstance(error, StandsStill):
                        raise
    except StandsStill:
        pass
    tell(found)
    nccl.ncclCommDestroy(communicator)


def main(folders):
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")  # a machine may have nothing else
    os.environ.setdefault("NCCL_DEBUG", "WARN")
    # Its words go through C's stdout else, which comes out behind all that Python has printed.
    os.environ.setdefault("NCCL_DEBUG_FILE", "/dev/stderr")
    try:
        check(Library(folders, "libcuda.so.1"), Library(folders, "libnccl.so.2"))
    except LeftOut as why:
        tell({"left out": str(why)})


if __name__ == "__main__":
    main(sys.argv[1:])
