"""Rules on patterns anywhere in a candidate's Python: caches, patches, streams, encoded code, tampering."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from kernelrl_core.api.sources import ENTRY
from kernelrl_plugin_checkers.kept_results import kept_results
from kernelrl_plugin_checkers.reading import Breach, Reading

__all__ = ["pattern_breaches", "waits_for_streams"]

_PATCHABLE = ("torch", "time", "triton", "builtins", "sys", "gc", "inspect")
_INSPECTION = {
    *("sys._getframe", "sys._current_frames", "inspect.stack", "inspect.currentframe", "inspect.getouterframes"),
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents"),
    *("sys.settrace", "sys.setprofile", "sys.addaudithook", "signal.signal", "signal.setitimer", "signal.alarm"),
    *("ctypes.string_at", "ctypes.memmove", "torch.cuda.memory_snapshot", "torch.cuda.memory._snapshot"),
}
_WATCHED = ("sys.modules", "sys.monitoring", "gc.callbacks")
_JUDGES = ("kernelrl_judge", "kernelrl_core", "kernelrl_plugin_")
_OTHERS_FRAMES = {
    *("tb_frame", "tb_next", "f_back", "f_locals", "f_globals", "f_builtins", "gi_frame", "cr_frame", "ag_frame"),
    *("__globals__", "__subclasses__", "__closure__"),
}
_CONCURRENCY_MODULES = ("threading", "_thread", "multiprocessing", "concurrent", "subprocess", "asyncio")
_CONCURRENCY = {
    *("os.fork", "os.forkpty", "os.system", "os.popen", "os.posix_spawn", "os.execv", "os.execve", "os.execvp"),
    *("os.kill", "os.killpg", "os._exit", "torch.jit.fork", "torch.jit._fork", "torch.multiprocessing.spawn"),
}
_OUTSIDE = {
    *("open", "io.open", "pathlib.Path", "os.environ", "os.getenv", "os.listdir", "os.open", "os.walk", "os.scandir"),
    *("glob.glob", "torch.load", "torch.hub.load", "torch.hub.download_url_to_file", "numpy.load"),
}
_OUTSIDE_MODULES = ("socket", "urllib", "requests", "http", "shutil", "pip", "huggingface_hub")
_BUILTIN_MAKERS = {"exec", "eval", "__builtins__"}
"""Of code. Being named is enough: what is named can be called under another name."""
_CODE_MAKERS = {
    *("exec", "eval", "compile", "types.CodeType", "types.FunctionType", "marshal.loads", "pickle.loads"),
    *("dill.loads", "cloudpickle.loads", "timeit.timeit", "timeit.Timer", "code.InteractiveInterpreter"),
    *("code.InteractiveConsole", "codeop.compile_command", "runpy.run_path", "runpy.run_module", "imp.load_source"),
    *("importlib.util.spec_from_file_location", "importlib.util.spec_from_loader", "zipimport.zipimporter"),
    *("importlib.machinery.SourceFileLoader", "importlib.machinery.SourcelessFileLoader"),
    *("importlib.machinery.ExtensionFileLoader", "sys.path.insert", "sys.path.append", "sys.path.extend"),
    *("torch.ops.load_library", "torch.classes.load_library", "torch.jit.load", "torch.package.PackageImporter"),
}
_LOADERS = {"ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.LoadLibrary", "ctypes.pydll.LoadLibrary", "cffi.FFI.dlopen"}
_DRIVERS = re.compile(r"(?:.*/)?lib(?:cuda|cudart|nvrtc|amdhip64|hiprtc)\.so[.\d]*|nvcuda\.dll")
"""Libraries that launch kernels and compute nothing."""
_NAMESPACES = {"globals", "locals", "vars"}
_KERNEL_SOURCES = {"src", "_src", "_unsafe_update_src"}
_DECODERS = {
    *("base64.b64decode", "base64.b32decode", "base64.b85decode", "base64.a85decode", "base64.decodebytes"),
    *("zlib.decompress", "gzip.decompress", "bz2.decompress", "lzma.decompress", "codecs.decode", "bytes.fromhex"),
    *("binascii.unhexlify", "binascii.a2b_base64", "base64.b16decode", "base64.urlsafe_b64decode"),
}
_IMPORTERS = {"__import__", "importlib.import_module"}
_PRECISION_CALLS = {
    *("torch.set_float32_matmul_precision", "torch.set_default_dtype", "torch.set_default_tensor_type"),
    *("torch.set_flush_denormal", "torch.use_deterministic_algorithms"),
}
_PRECISION_WORDS = ("tf32", "precision", "fp16", "bf16", "reduced", "deterministic")
_COMPILERS = {
    *("torch.compile", "torch.jit.script", "torch.jit.trace", "torch.jit.freeze", "torch._dynamo.optimize"),
    *("torch.export.export", "jax.jit"),
}
_COMPILER_PREFIXES = ("torch._inductor.", "torch_tensorrt.", "tensorrt.")
_RANDOM = {
    *("torch.get_rng_state", "torch.initial_seed", "torch.random.get_rng_state", "torch.random.initial_seed"),
    *("torch.cuda.get_rng_state", "torch.cuda.get_rng_state_all", "torch.cuda.initial_seed", "random.getstate"),
    *("numpy.random.get_state", "torch.set_rng_state", "torch.cuda.set_rng_state", "torch.default_generator"),
}
_PRIVATE = re.compile(
    r"\.(?:_C\b(?!\._cuda_getCurrentRawStream|\._nn\b|\.TensorBase\b)|_python_dispatch|_functorch|_is_profiler_enabled"
    r"|_profiler_enabled|_disable_\w+|_enable_record\w*|_(?:get|len|pop|push)_\w*(?:mode|stack)\w*"
    r"|profiler\.ExecutionTraceObserver)"
)
"""Of torch's names those that look at who watches, or end that, and at what lies below."""
_STREAMS = {"torch.cuda.Stream", "torch.Stream", "cupy.cuda.Stream"}
_WAITS = frozenset({"wait_event", "synchronize", "wait"})
_GRAPHS = {"torch.cuda.CUDAGraph", "torch.cuda.graph"}
_LAZY_HOOKS = {"__torch_function__", "__torch_dispatch__"}
_LAZY_MAKERS = {"_make_subclass", "_make_wrapper_subclass", "as_subclass"}
_TENSORS = {"torch.Tensor", "torch.nn.Parameter", "torch._C.TensorBase"}


def pattern_breaches(reading: Reading, *, waits: bool, copies: bool) -> Iterator[Breach]:
    """Breaches of the rules that hold for the whole file.

    Args:
        waits: whether any part of the candidate waits for a stream.
        copies: whether any part copies, into the inputs of a graph say.
    """
    settled = {"side_stream": waits, "frozen_graph": copies}
    for node in reading.nodes:
        look = _LOOKS.get(type(node))
        if look is not None:
            for rule, line, note in look(reading, node):
                if not settled.get(rule):
                    yield rule, line, note
    yield from _inherited(reading)
    yield from kept_results(reading)


def waits_for_streams(reading: Reading) -> bool:
    """Whether something waits for a stream other than the current one, for an event, or for the device."""
    for node in reading.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in _WAITS:
            return True
        if node.func.attr == "wait_stream" and node.args and not _is_current_stream(reading, node.args[0]):
            return True
    return False


def _is_current_stream(reading: Reading, stream: ast.expr) -> bool:
    name = stream.id if isinstance(stream, ast.Name) else stream.attr if isinstance(stream, ast.Attribute) else ""
    return any(
        isinstance(value, ast.Call) and reading.dotted(value.func).endswith(".current_stream")
        for value in (stream, *reading.index.bodies.get(name, ())[:4])
    )


def _import(reading: Reading, node: ast.Import | ast.ImportFrom) -> Iterator[Breach]:
    for name in [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]:
        yield from _imported(name, node.lineno)


def _imported(name: str, line: int) -> Iterator[Breach]:
    if name.startswith(_JUDGES):
        yield "inspection", line, f"import of {name}"
    if name.split(".")[0] in _CONCURRENCY_MODULES:
        yield "concurrency", line, f"import of {name}"
    if name.split(".")[0] in _OUTSIDE_MODULES:
        yield "outside_access", line, f"import of {name}"


def _call(reading: Reading, node: ast.Call) -> Iterator[Breach]:
    line = node.lineno
    name = reading.dotted(node.func).removeprefix("builtins.")
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in _INSPECTION or attribute == "from_address":
        yield "inspection", line, name or attribute
    elif name in _CONCURRENCY or name.split(".")[0] in _CONCURRENCY_MODULES:
        yield "concurrency", line, name
    elif name in _OUTSIDE:
        path = reading.folded(node.args[0]) if node.args else None
        if path is not None and path.startswith("/proc"):
            yield "inspection", line, f"{name} of {path[:40]}"
        else:
            yield "outside_access", line, name
    elif name in _CODE_MAKERS or name in _DECODERS:
        yield "dynamic_code", line, name
    elif name in _LOADERS:
        path = reading.folded(node.args[0]) if node.args else None
        if path is None or not _DRIVERS.fullmatch(path):
            yield "library_glue", line, f"{name} of a library that may compute"
    elif attribute == "_unsafe_update_src":
        yield "dynamic_code", line, "another source for a kernel"
    elif isinstance(node.func, ast.Call) and _is_class_of_functions(reading, node.func):
        yield "dynamic_code", line, "a function made of code"
    elif name in _IMPORTERS:
        imported = reading.folded(node.args[0]) if node.args else None
        if imported is None:
            yield "dynamic_code", line, f"{name} of a computed name"
        else:
            yield from _imported(imported, line)
    elif name in _PRECISION_CALLS:
        yield "precision_switch", line, name
    elif name in _STREAMS:
        yield "side_stream", line, f"{name}, and nothing that waits for it"
    elif name in _GRAPHS:
        yield "frozen_graph", line, f"{name}, and nothing that copies into its inputs"
    elif attribute in _LAZY_MAKERS:
        yield "lazy_result", line, attribute
    elif name.startswith("unittest.mock.patch"):
        yield "timing_patch", line, name
    elif name in ("getattr", "setattr", "delattr") and len(node.args) >= 2:
        yield from _attribute_call(reading, name, node)


def _is_class_of_functions(reading: Reading, call: ast.Call) -> bool:
    if reading.dotted(call.func) != "type" or len(call.args) != 1:
        return False
    of = call.args[0]
    return isinstance(of, ast.Lambda) or (isinstance(of, ast.Name) and _is_function(reading, of.id))


def _is_function(reading: Reading, name: str) -> bool:
    return any(isinstance(body, ast.FunctionDef) for body in reading.index.bodies.get(name, ()))


def _attribute_call(reading: Reading, name: str, node: ast.Call) -> Iterator[Breach]:
    changed = node.args[0].id if name == "setattr" and isinstance(node.args[0], ast.Name) else ""
    if _is_function(reading, changed) and reading.folded(node.args[1]) in _KERNEL_SOURCES:
        yield "dynamic_code", node.lineno, "another source for a kernel"
    owner = reading.dotted(node.args[0])
    if owner.split(".")[0] not in _PATCHABLE:
        return
    word = reading.folded(node.args[1])
    if name == "getattr":
        if word is None:
            yield "dynamic_code", node.lineno, f"a computed attribute of {owner}"
    elif owner.startswith("torch.backends"):
        yield from _precision(f"{owner}.{word or ''}", node.lineno)
    else:
        yield "timing_patch", node.lineno, f"{name} on {owner}"


def _assignment(reading: Reading, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Iterator[Breach]:
    waiting: list[ast.expr] = list(node.targets) if isinstance(node, ast.Assign) else [node.target]
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        elif isinstance(target, ast.Attribute):
            name = reading.dotted(target)
            if name.startswith("torch.backends."):
                yield from _precision(name, node.lineno)
            elif name.split(".")[0] in _PATCHABLE and "." in name:
                yield "timing_patch", node.lineno, f"assignment to {name}"
            elif (
                target.attr in _KERNEL_SOURCES
                and isinstance(target.value, ast.Name)
                and _is_function(reading, target.value.id)
            ):
                yield "dynamic_code", node.lineno, "another source for a kernel"
            elif target.attr == "__code__":
                yield "timing_patch", node.lineno, "assignment to the code of a function"
        elif isinstance(target, ast.Subscript):
            name = reading.dotted(target.value)
            if not name and isinstance(target.value, ast.Call) and target.value.args:
                called = reading.dotted(target.value.func)
                name = f"{reading.dotted(target.value.args[0])}.__dict__" if called == "vars" else ""
            if name == "sys.modules" or (name.endswith(".__dict__") and name.split(".")[0] in _PATCHABLE):
                yield "timing_patch", node.lineno, f"assignment into {name}"


def _precision(name: str, line: int) -> Iterator[Breach]:
    if any(word in name.rpartition(".")[2] for word in _PRECISION_WORDS):
        yield "precision_switch", line, name


def _attribute(reading: Reading, node: ast.Attribute | ast.Name) -> Iterator[Breach]:
    name = reading.modules.get(node.id, "") if isinstance(node, ast.Name) else reading.dotted(node)
    if name == "os.environ":
        yield "outside_access", node.lineno, name
    elif name.startswith("linecache."):
        yield "dynamic_code", node.lineno, f"{name}, which sources are read from"
    elif name in _COMPILERS or name.startswith(_COMPILER_PREFIXES):
        yield "compiled_answer", node.lineno, name
    elif name in _WATCHED or (name.startswith("torch.") and _PRIVATE.search(name)):
        yield "inspection", node.lineno, name
    elif isinstance(node, ast.Attribute) and node.attr in _OTHERS_FRAMES:
        yield "inspection", node.lineno, f"attribute {node.attr}"
    elif name in _RANDOM:
        yield "random_state", node.lineno, name
    elif name.startswith("builtins.") and name.removeprefix("builtins.") in _BUILTIN_MAKERS:
        yield "dynamic_code", node.lineno, name
    elif isinstance(node, ast.Name) and node.id in _BUILTIN_MAKERS and not _is_of_the_file(reading, node.id):
        yield "dynamic_code", node.lineno, node.id


def _is_of_the_file(reading: Reading, name: str) -> bool:
    return any(isinstance(item, ast.FunctionDef) and item.name == name for item in reading.tree.body)


def _subscript(reading: Reading, node: ast.Subscript) -> Iterator[Breach]:
    if isinstance(node.value, ast.Call) and not node.value.args and reading.dotted(node.value.func) in _NAMESPACES:
        key = reading.folded(node.slice)
        if key is None or key == "__builtins__":
            yield "dynamic_code", node.lineno, f"{reading.dotted(node.value.func)}() by a computed name"


def _class(reading: Reading, node: ast.ClassDef) -> Iterator[Breach]:
    if any(reading.dotted(base) in _TENSORS for base in node.bases):
        yield "lazy_result", node.lineno, f"class {node.name} is a tensor"
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name in _LAZY_HOOKS:
            yield "lazy_result", item.lineno, item.name


def _inherited(reading: Reading) -> Iterator[Breach]:
    defined = {node.name: node for node in reading.nodes if isinstance(node, ast.ClassDef)}
    for node in reading.nodes:
        if not isinstance(node, ast.ClassDef) or node.name != ENTRY:
            continue
        own = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        for base in node.bases:
            name = reading.dotted(base)
            first = name.split(".")[0]
            parent = base.id if isinstance(base, ast.Name) else ""
            if parent in defined:
                has_forward = any(getattr(item, "name", "") == "forward" for item in defined[parent].body)
                if "forward" not in own and has_forward:
                    yield "inherited_reference", node.lineno, f"forward is that of {parent}"
            elif first not in ("torch", "abc", "typing") and (first or parent):
                yield "inherited_reference", node.lineno, f"{name or parent} is not of this file"
        for below in reading.walk(node):
            if (
                isinstance(below, ast.Call)
                and isinstance(below.func, ast.Attribute)
                and below.func.attr in ("forward", "__call__")
                and isinstance(below.func.value, ast.Call)
                and reading.dotted(below.func.value.func) == "super"
            ):
                yield "inherited_reference", below.lineno, "a call of the parent's forward"


_LOOKS: dict[type[ast.AST], Callable[..., Iterator[Breach]]] = {
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Call: _call,
    ast.Assign: _assignment,
    ast.AugAssign: _assignment,
    ast.AnnAssign: _assignment,
    ast.Attribute: _attribute,
    ast.Name: _attribute,
    ast.Subscript: _subscript,
    ast.ClassDef: _class,
}
