"""The build service: C++, CUDA and HIP sources of candidates to shared objects, quickly, in a sandbox, kept on disk."""
