/* Linked into every extension for CUDA with --wrap: while a call is recorded into a CUDA graph, work without a stream
   of its own goes to the stream that is captured, and calls that wait for the device do nothing. At all other times
   every function is the runtime's own.

   krl_capture_stream is a function of the library that records (replay/native.c); null where it is not loaded. */
#include <stddef.h>
#include <stdint.h>

typedef int Error;
typedef void *Stream;
typedef struct {
  unsigned x, y, z;
} Size;
typedef struct {
  Size grid, block;
  size_t shared_bytes;
  Stream stream;
  void *attributes;
  unsigned n_attributes;
} Launch; /* cudaLaunchConfig_t */

extern Stream krl_capture_stream(void) __attribute__((weak));

static Stream captured(void) { return krl_capture_stream ? krl_capture_stream() : NULL; }

/* 0, 1 and 2 stand for the default streams. */
static Stream on(Stream stream) {
  Stream now = (uintptr_t)stream <= 2 ? captured() : NULL;
  return now ? now : stream;
}

#define WRAP(name, arguments) \
  Error __real_##name arguments; \
  Error __wrap_##name arguments

WRAP(cudaLaunchKernel, (const void *kernel, Size grid, Size block, void **arguments, size_t shared, Stream stream)) {
  return __real_cudaLaunchKernel(kernel, grid, block, arguments, shared, on(stream));
}
/* nvcc since CUDA 13 launches through a handle. Here the handle is the function, and the launch an ordinary one, which
   is captured and later attributed to the extension like those of every other compiler. */
Error __wrap_cudaLaunchKernel(const void *, Size, Size, void **, size_t, Stream);
Error cudaLaunchKernel_ptsz(const void *, Size, Size, void **, size_t, Stream);
Error __wrap___cudaGetKernel(const void **handle, const void *function) {
  *handle = function;
  return 0;
}
Error __wrap___cudaLaunchKernel(
    const void *kernel, Size grid, Size block, void **arguments, size_t shared, Stream stream) {
  return __wrap_cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
Error __wrap___cudaLaunchKernel_ptsz(
    const void *kernel, Size grid, Size block, void **arguments, size_t shared, Stream stream) {
  return cudaLaunchKernel_ptsz(kernel, grid, block, arguments, shared, on(stream));
}
WRAP(cudaLaunchCooperativeKernel,
     (const void *kernel, Size grid, Size block, void **arguments, size_t shared, Stream stream)) {
  return __real_cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared, on(stream));
}
WRAP(cudaLaunchKernelExC, (const Launch *launch, const void *kernel, void **arguments)) {
  Launch other = *launch;
  other.stream = on(launch->stream);
  return __real_cudaLaunchKernelExC(&other, kernel, arguments);
}
WRAP(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, Stream stream)) {
  return __real_cudaMemcpyAsync(to, from, bytes, kind, on(stream));
}
WRAP(cudaMemsetAsync, (void *at, int value, size_t bytes, Stream stream)) {
  return __real_cudaMemsetAsync(at, value, bytes, on(stream));
}
WRAP(cudaMemcpy, (void *to, const void *from, size_t bytes, int kind)) {
  Stream stream = captured();
  return stream ? __real_cudaMemcpyAsync(to, from, bytes, kind, stream) : __real_cudaMemcpy(to, from, bytes, kind);
}
WRAP(cudaMemset, (void *at, int value, size_t bytes)) {
  Stream stream = captured();
  return stream ? __real_cudaMemsetAsync(at, value, bytes, stream) : __real_cudaMemset(at, value, bytes);
}
Error cudaMallocAsync(void **at, size_t bytes, Stream stream);
Error cudaFreeAsync(void *at, Stream stream);
WRAP(cudaMalloc, (void **at, size_t bytes)) {
  Stream stream = captured();
  return stream ? cudaMallocAsync(at, bytes, stream) : __real_cudaMalloc(at, bytes);
}
WRAP(cudaFree, (void *at)) {
  Stream stream = captured();
  return stream ? cudaFreeAsync(at, stream) : __real_cudaFree(at);
}
WRAP(cudaDeviceSynchronize, (void)) { return captured() ? 0 : __real_cudaDeviceSynchronize(); }
WRAP(cudaStreamSynchronize, (Stream stream)) { return captured() ? 0 : __real_cudaStreamSynchronize(stream); }
WRAP(cudaEventSynchronize, (void *event)) { return captured() ? 0 : __real_cudaEventSynchronize(event); }
