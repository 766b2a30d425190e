"""Stand-ins for what KernelBench imports to ask models, which plays no part in a comparison.

Source to put before a program that imports KernelBench in a process of its own.
"""

STAND_INS = """
import importlib.util, json, sys, types
for name in ("openai", "litellm", "dotenv", "tqdm", "tomli", "requests"):
    if importlib.util.find_spec(name) is None:
        module = types.ModuleType(name)
        module.OpenAI = module.completion = module.load_dotenv = module.tqdm = lambda *a, **k: a[0] if a else None
        sys.modules[name] = module
if importlib.util.find_spec("pydantic") is None:
    class BaseModel:
        def __init__(self, **values):
            self.metadata = {}
            self.__dict__.update(values)
        def __getattr__(self, name):
            return getattr(type(self), name)
    module = types.ModuleType("pydantic")
    module.BaseModel = BaseModel
    sys.modules["pydantic"] = module
"""
