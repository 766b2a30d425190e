"""Record and replay: correctness and time of a kernel from CUDA graphs.

`forward` is captured k times, on k input slots, into one CUDA graph. Everything that is compared or timed is a replay
of that graph on inputs that the judge writes into the input slots. During a replay none of the candidate's Python runs.

| module | task |
|---|---|
| `native.c`, `library` | time stamps, replays, nodes of a graph; depends on the driver alone |
| `capture` | captures calls of a function on input slots into graphs |
| `nodes` | own kernels, library kernels and glue |
| `slope` | number of calls of a recording; time per call from windows of n and n/2 calls |
"""
