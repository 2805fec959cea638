"""Holds memory of GPU 0 in a process of its own and tells what the driver says is free: one line of bytes per line read.
python3 hold.py GIGABYTES [LEAVE]      LEAVE: more, until no more than so many GB are free"""

import ctypes
import sys


def main():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *args):
        status = getattr(cuda, name)(*args)
        if status != 0:
            sys.exit(f"{name}: error {status}")

    device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    leave = float(sys.argv[2]) * 1e9 if len(sys.argv) > 2 else free.value
    if size := int(max(float(sys.argv[1]) * 1e9, free.value - leave)):
        call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
    print("holds", flush=True)
    for _ in sys.stdin:
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        print(free.value, total.value, flush=True)


if __name__ == "__main__":
    main()
