"""The build service: compiles C++, CUDA and HIP sources of candidates to shared objects, in a sandbox, with a cache."""
