/* Replays CUDA graphs and reports device times. See the package's docstring.

   Depends on the driver library alone, opened by krl_open, and on no CUDA header: the types below are those of the
   driver's stable ABI. The device code is PTX that the driver compiles, so no CUDA compiler is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

typedef int Result;
typedef void *Handle;

enum { KERNEL = 0, MEMCPY = 1, MEMSET = 2, HOST = 3 };
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_UNIFIED = 4 };
enum { POINTER_MEMORY_TYPE = 2 };
enum { AUTO_FREE_ON_LAUNCH = 1 };
enum { HOST_ALLOC_PORTABLE = 1, HOST_ALLOC_MAPPED = 2 };

typedef struct {
  Handle func;
  unsigned grid[3], block[3], shared_bytes;
  void **params, **extra;
  Handle kern, context;
} KernelNode; /* CUDA_KERNEL_NODE_PARAMS_v2 */

typedef struct {
  void *func;
  unsigned grid[3], block[3], shared_bytes;
  void **params, **extra;
} RuntimeKernelNode; /* cudaKernelNodeParams */

typedef struct {
  size_t x, y, z, lod;
  int type;
  const void *host;
  uint64_t device;
  Handle array;
  void *reserved;
  size_t pitch, height;
} CopySide;

typedef struct {
  CopySide from, to;
  size_t width, height, depth;
} CopyNode; /* CUDA_MEMCPY3D */

typedef struct {
  uint64_t to;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
} FillNode; /* CUDA_MEMSET_NODE_PARAMS */

#define DRIVER(F)                                                                                     \
  F(cuModuleLoadData, (Handle *, const void *))                                                       \
  F(cuModuleGetFunction, (Handle *, Handle, const char *))                                            \
  F(cuLaunchKernel, (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **)) \
  F(cuMemHostAlloc, (void **, size_t, unsigned))                                                      \
  F(cuMemsetD8Async, (uint64_t, unsigned char, size_t, Handle))                                       \
  F(cuStreamCreate, (Handle *, unsigned))                                                             \
  F(cuStreamSynchronize, (Handle))                                                                    \
  F(cuStreamGetCaptureInfo_v2, (Handle, int *, uint64_t *, Handle *, const Handle **, size_t *))       \
  F(cuGraphGetNodes, (Handle, Handle *, size_t *))                                                    \
  F(cuGraphNodeGetType, (Handle, int *))                                                              \
  F(cuGraphKernelNodeGetParams_v2, (Handle, KernelNode *))                                            \
  F(cuGraphMemcpyNodeGetParams, (Handle, CopyNode *))                                                 \
  F(cuGraphMemsetNodeGetParams, (Handle, FillNode *))                                                 \
  F(cuGraphInstantiateWithFlags, (Handle *, Handle, unsigned long long))                              \
  F(cuGraphUpload, (Handle, Handle))                                                                  \
  F(cuGraphLaunch, (Handle, Handle))                                                                  \
  F(cuGraphExecDestroy, (Handle))                                                                     \
  F(cuGraphNodeSetEnabled, (Handle, Handle, unsigned))                                                \
  F(cuPointerGetAttribute, (void *, int, uint64_t))                                                   \
  F(cuFuncGetName, (const char **, Handle))                                                           \
  F(cuFuncGetParamInfo, (Handle, size_t, size_t *, size_t *))                                         \
  F(cuKernelGetParamInfo, (Handle, size_t, size_t *, size_t *))                                       \
  F(cuKernelGetName, (const char **, Handle))

#define DECLARE(name, arguments) static Result(*name) arguments;
DRIVER(DECLARE)

static Result (*runtime_params)(Handle, RuntimeKernelNode *);
static Result (*runtime_last_error)(void);
static Handle stamp_function, gate_function, clock_function;

static const char ptx[] =
    ".version 6.3\n.target sm_70\n.address_size 64\n"
    /* Writes the time in ns. */
    ".visible .entry krl_stamp(.param .u64 at) {\n"
    "  .reg .u64 %a, %t;\n"
    "  ld.param.u64 %a, [at];\n"
    "  mov.u64 %t, %globaltimer;\n"
    "  st.volatile.global.u64 [%a], %t;\n"
    "  ret;\n}\n"
    /* Ends when *gate >= value. */
    ".visible .entry krl_gate(.param .u64 gate, .param .u32 value) {\n"
    "  .reg .u64 %a;\n  .reg .u32 %v, %g;\n  .reg .pred %open;\n"
    "  ld.param.u64 %a, [gate];\n"
    "  ld.param.u32 %v, [value];\n"
    "WAIT:\n"
    "  ld.volatile.global.u32 %g, [%a];\n"
    "  setp.ge.u32 %open, %g, %v;\n"
    "  @%open bra OPEN;\n"
    "  nanosleep.u32 200;\n"
    "  bra WAIT;\n"
    "OPEN:\n  ret;\n}\n"
    /* Writes the SM's cycles and the ns of at least `length` ns, between two ticks of the timer. */
    ".visible .entry krl_clock(.param .u64 at, .param .u64 length) {\n"
    "  .reg .u64 %a, %l, %t0, %t1, %t2, %c0, %c1, %d;\n  .reg .pred %p;\n"
    "  ld.param.u64 %a, [at];\n"
    "  ld.param.u64 %l, [length];\n"
    "  mov.u64 %t0, %globaltimer;\n"
    "FIRST:\n"
    "  mov.u64 %t1, %globaltimer;\n"
    "  setp.eq.u64 %p, %t1, %t0;\n"
    "  @%p bra FIRST;\n"
    "  mov.u64 %c0, %clock64;\n"
    "LENGTH:\n"
    "  mov.u64 %t0, %globaltimer;\n"
    "  sub.u64 %d, %t0, %t1;\n"
    "  setp.lt.u64 %p, %d, %l;\n"
    "  @%p bra LENGTH;\n"
    "LAST:\n"
    "  mov.u64 %t2, %globaltimer;\n"
    "  setp.eq.u64 %p, %t2, %t0;\n"
    "  @%p bra LAST;\n"
    "  mov.u64 %c1, %clock64;\n"
    "  sub.u64 %c1, %c1, %c0;\n"
    "  sub.u64 %d, %t2, %t1;\n"
    "  st.volatile.global.u64 [%a], %c1;\n"
    "  st.volatile.global.u64 [%a+8], %d;\n"
    "  ret;\n}\n";

static __thread Handle capture_stream;

/* The stream to which extensions send work that names no stream (`capture.c` of kernelrl_build); NULL: no capture. */
Handle krl_capture_stream(void) { return capture_stream; }
void krl_capture_to(Handle stream) { capture_stream = stream; }

/* Opens the driver. Returns NULL, or the name of the missing library or function. Creates no context. */
const char *krl_open(const char *driver, const char *runtime) {
  void *library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
  if (!library) return driver;
#define RESOLVE(name, arguments) \
  if (!(*(void **)&name = dlsym(library, #name))) return #name;
  DRIVER(RESOLVE)
  void *loaded = runtime ? dlopen(runtime, RTLD_NOW | RTLD_NOLOAD) : NULL;
  if (loaded) {
    *(void **)&runtime_params = dlsym(loaded, "cudaGraphKernelNodeGetParams");
    *(void **)&runtime_last_error = dlsym(loaded, "cudaGetLastError");
  }
  return NULL;
}

/* Loads the device code into the current context. */
int krl_load(void) {
  Handle module;
  Result code = cuModuleLoadData(&module, ptx);
  if (!code) code = cuModuleGetFunction(&stamp_function, module, "krl_stamp");
  if (!code) code = cuModuleGetFunction(&gate_function, module, "krl_gate");
  if (!code) code = cuModuleGetFunction(&clock_function, module, "krl_clock");
  return code;
}

/* Host memory that the device can read and write. */
int krl_host_memory(size_t bytes, void **at) {
  return cuMemHostAlloc(at, bytes, HOST_ALLOC_PORTABLE | HOST_ALLOC_MAPPED);
}

static int run_one(Handle function, void **arguments, Handle stream) {
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

int krl_stamp(Handle stream, uint64_t at) {
  void *arguments[] = {&at};
  return run_one(stamp_function, arguments, stream);
}

int krl_clock(Handle stream, uint64_t at, uint64_t length_ns) {
  void *arguments[] = {&at, &length_ns};
  return run_one(clock_function, arguments, stream);
}

int krl_fill(Handle stream, uint64_t at, unsigned byte, size_t bytes) {
  return cuMemsetD8Async(at, (unsigned char)byte, bytes, stream);
}

/* A stream that waits for the legacy stream: while it is captured, the driver refuses work on the legacy stream. */
int krl_stream(Handle *made) { return cuStreamCreate(made, 0); }

int krl_wait(Handle stream) { return cuStreamSynchronize(stream); }

/* Number of nodes that the stream has captured; < 0: -1 - status where the stream does not capture. */
int krl_captured(Handle stream) {
  int status = 0;
  uint64_t id;
  Handle graph;
  const Handle *waits;
  size_t count = 0, n_waits;
  if (cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &waits, &n_waits) || status != 1) return -1 - status;
  if (cuGraphGetNodes(graph, NULL, &count)) return -1;
  return (int)count;
}

enum { MAX_ADDRESSES = 24 };

typedef struct {
  int type, on_host, launched_by, blocks, n_addresses;
  uint64_t filled_bytes, addresses[MAX_ADDRESSES];
  char name[1024], file[160];
} Node;

enum { BY_DRIVER = 0, BY_RUNTIME = 1, BY_OTHER_RUNTIME = 2 };

static int host_side(const CopySide *side) {
  if (side->type == MEMORY_HOST) return 1;
  if (side->type != MEMORY_UNIFIED) return 0;
  unsigned type = 0;
  return cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, side->device) || type != MEMORY_DEVICE;
}

/* Addresses of device memory among the words of an argument. */
static void find_addresses(const char *argument, size_t bytes, Node *found) {
  for (size_t at = 0; at + 8 <= bytes && found->n_addresses < MAX_ADDRESSES; at += 8) {
    uint64_t word;
    unsigned type = 0;
    memcpy(&word, argument + at, 8);
    if (word >> 32 && !(word >> 56) && !cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, word) && type == MEMORY_DEVICE)
      found->addresses[found->n_addresses++] = word;
  }
}

static void describe_arguments(const KernelNode *params, Node *found) {
  size_t offset, bytes;
  for (size_t i = 0; params->params; i++) {
    Result code = params->kern ? cuKernelGetParamInfo(params->kern, i, &offset, &bytes)
                               : cuFuncGetParamInfo(params->func, i, &offset, &bytes);
    if (code) return;
    find_addresses(params->params[i], bytes, found);
  }
}

static void describe_kernel(Handle node, Node *found) {
  KernelNode params = {0};
  const char *name = NULL;
  if (cuGraphKernelNodeGetParams_v2(node, &params)) return;
  if (params.kern)
    cuKernelGetName(&name, params.kern);
  else if (params.func)
    cuFuncGetName(&name, params.func);
  if (name) strncpy(found->name, name, sizeof found->name - 1);
  RuntimeKernelNode seen = {0};
  Dl_info where;
  found->launched_by = params.kern ? BY_OTHER_RUNTIME : BY_DRIVER;
  unsigned long long blocks = (unsigned long long)params.grid[0] * params.grid[1] * params.grid[2];
  found->blocks = blocks < 1 << 30 ? (int)blocks : 1 << 30;
  describe_arguments(&params, found);
  if (!params.kern || !runtime_params || !runtime_last_error) return;
  if (runtime_params(node, &seen)) {
    runtime_last_error(); /* Clear the error, or the next caller would attribute it to its own call. */
  } else if (dladdr(seen.func, &where) && where.dli_fname) {
    found->launched_by = BY_RUNTIME;
    strncpy(found->file, where.dli_fname, sizeof found->file - 1);
  }
}

/* Describes nodes [from, to) of a graph. Returns an error code. */
int krl_nodes(Handle graph, size_t from, size_t to, Node *found) {
  Handle nodes[to ? to : 1];
  size_t count = to;
  Result code = cuGraphGetNodes(graph, nodes, &count);
  for (size_t i = from; !code && i < to && i < count; i++, found++) {
    memset(found, 0, sizeof *found);
    code = cuGraphNodeGetType(nodes[i], &found->type);
    if (code) break;
    if (found->type == KERNEL) describe_kernel(nodes[i], found);
    if (found->type == MEMCPY) {
      CopyNode copy = {0};
      code = cuGraphMemcpyNodeGetParams(nodes[i], &copy);
      found->on_host = host_side(&copy.from) || host_side(&copy.to);
    }
    if (found->type == MEMSET) {
      FillNode fill = {0};
      code = cuGraphMemsetNodeGetParams(nodes[i], &fill);
      found->filled_bytes = (uint64_t)fill.element_bytes * fill.width * fill.height;
    }
  }
  return code;
}

int krl_instantiate(Handle graph, Handle stream, Handle *ready) {
  Result code = cuGraphInstantiateWithFlags(ready, graph, AUTO_FREE_ON_LAUNCH);
  return code ? code : cuGraphUpload(*ready, stream);
}

int krl_destroy(Handle ready) { return cuGraphExecDestroy(ready); }

/* Enables or disables nodes of an instantiated graph, by their numbers. */
int krl_switch(Handle graph, Handle ready, const uint32_t *numbers, size_t n_numbers, unsigned enabled) {
  size_t count = 0;
  Result code = cuGraphGetNodes(graph, NULL, &count);
  if (code) return code;
  Handle nodes[count ? count : 1];
  code = cuGraphGetNodes(graph, nodes, &count);
  for (size_t i = 0; !code && i < n_numbers; i++)
    if (numbers[i] < count) code = cuGraphNodeSetEnabled(ready, nodes[numbers[i]], enabled);
  return code;
}

/* The launch of a large graph waits for the device, so it must not be behind a gate that opens after the launch. */
enum { MOST_GATED_NODES = 1000 };

static int is_gated(Handle graph) {
  size_t count = 0;
  return !cuGraphGetNodes(graph, NULL, &count) && count <= MOST_GATED_NODES;
}

/* Queues a graph behind a gate that is shut. `krl_release` launches a graph that is too large for that. */
int krl_queue(Handle graph, Handle ready, Handle stream, uint64_t gate, unsigned number) {
  if (!is_gated(graph)) return 0;
  void *arguments[] = {&gate, &number};
  Result code = run_one(gate_function, arguments, stream);
  return code ? code : cuGraphLaunch(ready, stream);
}

/* Opens the gate and waits for the device. */
int krl_release(Handle graph, Handle ready, Handle stream, uint32_t *gate, unsigned number) {
  Result code = is_gated(graph) ? 0 : cuGraphLaunch(ready, stream);
  __atomic_store_n(gate, number, __ATOMIC_SEQ_CST);
  return code ? code : cuStreamSynchronize(stream);
}

/* The protocol of `krl_serve`: frames of `kernelrl_judge.protocol.frames`, little-endian. */
enum { QUEUE = 1, RELEASE = 2, SWITCH = 3, LEAVE = 4 };
enum { STAMPS = 5 };
typedef struct __attribute__((packed)) {
  char magic[4];
  uint8_t kind;
  uint32_t length;
} Header;
typedef struct __attribute__((packed)) {
  uint32_t action, graph, value;
} Order;
typedef struct __attribute__((packed)) {
  Header header;
  int32_t code;
  uint64_t stamps[STAMPS];
} Reply;

typedef struct {
  Handle graph, ready;
  uint64_t *stamps;
  const uint32_t *own;
  size_t n_own;
  const uint32_t *glue;
  size_t n_glue;
} Recording;

/* Bits of the value of an order SWITCH: the kinds of nodes that are enabled. */
enum { OWN_ON = 1, GLUE_ON = 2 };

static int whole(int fd, void *data, size_t bytes, int writing) {
  for (char *at = data; bytes;) {
    ssize_t n = writing ? write(fd, at, bytes) : read(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n, bytes -= (size_t)n;
  }
  return 1;
}

/* Serves the judge until it leaves. Returns 0, or -1 if the stream ended or an order is malformed. */
int krl_serve(int fd, int order_kind, int reply_kind, Handle stream, uint32_t *gate, Recording *recordings, size_t n) {
  unsigned number = *gate;
  for (;;) {
    Header header;
    Order order;
    if (!whole(fd, &header, sizeof header, 0) || memcmp(header.magic, "KRL1", 4) || header.kind != order_kind ||
        header.length != sizeof order || !whole(fd, &order, sizeof order, 0) || order.graph >= n)
      return -1;
    Recording *one = recordings + order.graph;
    Reply reply = {{{'K', 'R', 'L', '1'}, (uint8_t)reply_kind, sizeof reply - sizeof header}, 0, {0}};
    if (order.action == QUEUE) {
      reply.code = krl_queue(one->graph, one->ready, stream, (uint64_t)(uintptr_t)gate, ++number);
    } else if (order.action == RELEASE) {
      reply.code = krl_release(one->graph, one->ready, stream, gate, number);
      memcpy(reply.stamps, one->stamps, sizeof reply.stamps);
    } else if (order.action == SWITCH) {
      reply.code = krl_switch(one->graph, one->ready, one->own, one->n_own, !!(order.value & OWN_ON));
      if (!reply.code) reply.code = krl_switch(one->graph, one->ready, one->glue, one->n_glue, !!(order.value & GLUE_ON));
    } else if (order.action != LEAVE) {
      return -1;
    }
    if (!whole(fd, &reply, sizeof reply, 1)) return -1;
    if (order.action == LEAVE) return 0;
  }
}
