// Calls the trampolines of an extension with Python arguments; see binding.py. Built once per toolchain.

#include <dlfcn.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace py = pybind11;

namespace {

using Trampoline = void (*)(void* const*, void*);
using at::Tensor;
using Value = std::variant<Tensor, std::optional<Tensor>, std::vector<Tensor>, std::vector<int64_t>, int32_t, int64_t,
                           uint32_t, uint64_t, bool, float, double, std::string, std::tuple<Tensor, Tensor>,
                           std::tuple<Tensor, Tensor, Tensor>, std::tuple<Tensor, Tensor, Tensor, Tensor>>;
using Kinds = std::make_index_sequence<std::variant_size_v<Value>>;
const std::string CODES = "TOVLilumbfdS234";  // of the kinds, in their order

template <typename T>
bool convert(py::handle source, Value& target) {
  py::detail::make_caster<T> caster;
  if (!caster.load(source, true)) return false;
  target.emplace<T>(py::detail::cast_op<T>(caster));
  return true;
}

template <size_t... I>
bool convert(char code, py::handle source, Value& target, std::index_sequence<I...>) {
  return ((CODES[I] == code && convert<std::variant_alternative_t<I, Value>>(source, target)) || ...);
}

template <typename T>
py::object run(Trampoline trampoline, void* const* arguments) {
  alignas(T) unsigned char storage[sizeof(T)];
  trampoline(arguments, storage);
  T* result = reinterpret_cast<T*>(storage);
  py::object object = py::cast(std::move(*result));
  result->~T();
  return object;
}

template <size_t... I>
py::object run(char code, Trampoline trampoline, void* const* arguments, std::index_sequence<I...>) {
  py::object object = py::none();
  if (code == 'v') trampoline(arguments, nullptr);
  ((CODES[I] == code && (object = run<std::variant_alternative_t<I, Value>>(trampoline, arguments), true)) || ...);
  return object;
}

std::string incompatible(const std::string& name, const std::vector<std::string>& types, const py::args& given,
                         const py::kwargs& named) {
  std::string text = name + "(): incompatible function arguments. The following argument types are supported:\n    1. (";
  for (size_t i = 0; i < types.size(); ++i) text += (i ? ", arg" : "arg") + std::to_string(i) + ": " + types[i];
  text += ")\n\nInvoked with: ";
  for (size_t i = 0; i < given.size(); ++i) {
    if (i) text += ", ";
    text += py::repr(py::handle(PyTuple_GET_ITEM(given.ptr(), i)).get_type()).cast<std::string>();
  }
  if (named.size()) text += "; kwargs: " + py::repr(named).cast<std::string>().substr(0, 200);
  return text;
}

py::object bound(Trampoline trampoline, const std::string& name, const std::string& documentation,
                 const std::string& codes, const std::vector<std::string>& types, char result) {
  return py::cpp_function(
      [=](const py::args& given, const py::kwargs& named) -> py::object {
        HANDLE_TH_ERRORS
        if (given.size() != codes.size() || named.size()) throw py::type_error(incompatible(name, types, given, named));
        std::vector<Value> values(codes.size());
        std::vector<void*> places(codes.size());
        for (size_t i = 0; i < codes.size(); ++i) {
          if (!convert(codes[i], given[i], values[i], Kinds{}))
            throw py::type_error(incompatible(name, types, given, named));
          places[i] = std::visit([](auto& value) -> void* { return &value; }, values[i]);
        }
        return run(result, trampoline, places.data(), Kinds{});
        END_HANDLE_TH_ERRORS_PYBIND
      },
      py::name(name.c_str()), py::doc(documentation.c_str()));
}

py::dict bind(const std::string& path, const std::string& bindings) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw py::import_error(dlerror());
  py::dict functions;
  for (py::handle entry : py::module_::import("json").attr("loads")(bindings)) {
    std::string name = entry["name"].cast<std::string>();
    std::string symbol = entry["symbol"].cast<std::string>();
    void* trampoline = dlsym(library, symbol.c_str());
    if (!trampoline) throw py::import_error("no function " + name);
    std::string codes;
    for (py::handle code : entry["arguments"]) codes += code.cast<std::string>();
    functions[py::str(name)] =
        bound(reinterpret_cast<Trampoline>(trampoline), name, entry["documentation"].cast<std::string>(), codes,
              entry["types"].cast<std::vector<std::string>>(), entry["result"].cast<std::string>()[0]);
  }
  return functions;
}

}  // namespace

PYBIND11_MODULE(kernelrl_binder, m) {
  m.def("bind", &bind, "Functions of an extension, by name.");
}
