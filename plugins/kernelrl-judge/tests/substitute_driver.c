/* A substitute of the CUDA driver for machines without one: graphs are arrays of nodes, a launch writes times. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_MEMORY 0x7f0000001000

typedef void *Handle;
static uint32_t *gate, expected;
static uint64_t *stamps, launches;
static int next_error, n_nodes = 4;
static unsigned enabled[4] = {1, 1, 1, 1};
static char node[4];

void fail_next(int code) { next_error = code; }
void have_nodes(int number) { n_nodes = number; }
unsigned is_enabled(int number) { return enabled[number]; }
static int done(void) {
  int code = next_error;
  next_error = 0;
  return code;
}

int cuModuleLoadData(Handle *module, const void *image) { return *module = (Handle)1, image ? 0 : 1; }
int cuModuleGetFunction(Handle *function, Handle module, const char *name) {
  (void)module;
  *function = (Handle)(uintptr_t)(strcmp(name, "krl_gate") ? 2 : 3);
  return 0;
}
int cuLaunchKernel(Handle function, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                   Handle stream, void **arguments, void **extra) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)stream, (void)extra;
  if (function == (Handle)3) gate = *(uint32_t **)arguments[0], expected = *(unsigned *)arguments[1];
  return done();
}
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) { return (void)flags, !(*at = malloc(bytes)); }
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, Handle stream) {
  return (void)stream, memcpy((void *)to, (void *)from, bytes), 0;
}
int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t bytes, Handle stream) {
  return (void)stream, memset((void *)at, byte, bytes), 0;
}
/* The pass runs when the gate is open: not before. */
int cuStreamCreate(Handle *made, unsigned flags) {
  *made = made;
  return flags;
}

int cuStreamSynchronize(Handle stream) {
  (void)stream;
  if (stamps && gate && *gate >= expected) {
    launches++;
    for (int i = 0; i < 5; i++) stamps[i] = 10 * launches + (uint64_t)i;
  }
  return done();
}
int cuStreamGetCaptureInfo_v2(Handle stream, int *status, uint64_t *id, Handle *graph, const Handle **waits, size_t *n) {
  (void)id, (void)graph, (void)waits, (void)n;
  return *status = (int)(uintptr_t)stream, 0;
}
int cuGraphGetNodes(Handle graph, Handle *nodes, size_t *count) {
  (void)graph;
  if (nodes)
    for (size_t i = 0; i < *count && i < (size_t)n_nodes; i++) nodes[i] = node + i;
  else
    *count = (size_t)n_nodes;
  return 0;
}
/* Two kernels, a fill of memory, a function on the host. */
int cuGraphNodeGetType(Handle one, int *type) { return *type = (char *)one - node < 2 ? 0 : (char *)one - node, 0; }

/* A structure with device memory behind a number, then a number alone. */
static struct {
  uint64_t number, memory;
} structure = {0x7f0000002000, DEVICE_MEMORY};
static float number = 1;
static void *arguments[] = {&structure, &number};

int cuGraphKernelNodeGetParams_v2(Handle one, void *params) {
  struct {
    Handle function;
    unsigned grid[3], block[3], shared_bytes;
    void **arguments;
  } *found = params;
  memset(params, 0, 72);
  found->function = one;
  found->grid[0] = 2, found->grid[1] = 3, found->grid[2] = 1;
  found->arguments = arguments;
  return 0;
}
int cuFuncGetParamInfo(Handle function, size_t number, size_t *offset, size_t *bytes) {
  (void)function, *offset = 0;
  return *bytes = number ? 4 : sizeof structure, number > 1;
}
int cuKernelGetParamInfo(Handle kernel, size_t number, size_t *offset, size_t *bytes) {
  return (void)kernel, (void)number, (void)offset, (void)bytes, 1;
}
int cuGraphMemcpyNodeGetParams(Handle one, void *params) { return (void)one, (void)params, 0; }
int cuGraphMemsetNodeGetParams(Handle one, void *params) {
  struct {
    uint64_t to;
    size_t pitch;
    unsigned value, element_bytes;
    size_t width, height;
  } *found = params;
  (void)one;
  found->element_bytes = 4, found->width = 100, found->height = 3;
  return 0;
}
int cuGraphInstantiateWithFlags(Handle *ready, Handle graph, unsigned long long flags) {
  (void)graph, (void)flags;
  return *ready = (Handle)7, done();
}
int cuGraphUpload(Handle ready, Handle stream) { return (void)ready, (void)stream, 0; }
int cuGraphLaunch(Handle ready, Handle stream) { return (void)stream, stamps = ready, done(); }
int cuGraphExecDestroy(Handle ready) { return (void)ready, 0; }
int cuGraphNodeSetEnabled(Handle ready, Handle one, unsigned on) {
  (void)ready;
  return enabled[(char *)one - node] = on, done();
}
int cuPointerGetAttribute(void *data, int attribute, uint64_t at) {
  (void)attribute;
  return *(unsigned *)data = 2, at != DEVICE_MEMORY;
}
int cuFuncGetName(const char **name, Handle function) { return *name = (char *)function == node ? "first" : "other", 0; }
int cuKernelGetName(const char **name, Handle kernel) { return (void)kernel, *name = "kernel", 0; }
