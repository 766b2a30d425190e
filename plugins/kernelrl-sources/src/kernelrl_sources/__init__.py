"""Analysis of Python sources: parsing with bounds, reachability, data flow, near duplicates, error texts.

A library without dependencies. It executes nothing that it reads, and bounds its time and memory on hostile sources.
"""
