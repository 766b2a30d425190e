"""Record and replay: correctness and time of a kernel from CUDA graphs.

`forward` is captured k times, on k input slots, into one CUDA graph. Everything that is compared or timed is a replay
of that graph on inputs that the judge writes into the slots. During a replay none of the candidate's Python runs.

| module | process | task |
|---|---|---|
| `native.c`, `library` | both | timestamps, replays, nodes of a graph; depends on the driver alone |
| `capture` | both | capture calls of a function on input slots into graphs |
| `recorder` | runner | record the candidate, or report why it cannot be recorded; then the library serves the judge |
| `session` | judge | order recordings and passes of the runner |
| `trials` | judge | correctness: passes on fresh, hidden inputs |
| `measurement`, `slope` | judge | time: windows of candidate and reference in random order |
| `slots` | judge | number of calls of a recording |
| `nodes` | both | own, library and glue kernels |
"""
