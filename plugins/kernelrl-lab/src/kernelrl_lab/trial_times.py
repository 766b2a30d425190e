"""An open trial against the clock: attacks by someone who had read the evaluator; see `trial_machinery`."""

from __future__ import annotations

from kernelrl_lab.fixture import Expected, Fixture
from kernelrl_lab.frames import cpp
from kernelrl_lab.tasks import RELU_DOUBLE, large, task
from kernelrl_lab.trial_threads import THREADS, THREADS_NAMES

__all__ = ["FIXTURES", "LARGE", "SLOW", "attack", "with_threads"]

LARGE = large(RELU_DOUBLE)
_HEAVY = large(task("return torch.exp(torch.sin(x)).sum(dim=1)"))
SLOW = "return extension.slow_relu_double(x, 4)"

_DEFERRED = r"""
#include <torch/extension.h>
#include <torch/library.h>
#include <atomic>
#include <thread>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

static struct { at::Tensor to, from; } jobs[1024];
static std::atomic<int64_t> asked{0}, done{0};

static void deferred(at::TensorList to, at::TensorList from, bool) {
    static auto* worker = new std::thread([] {
        for (;;) {
            while (done == asked) {}
            auto& job = jobs[done % 1024];
            std::memcpy(job.to.data_ptr(), job.from.data_ptr(), job.to.nbytes());
            job = {};
            ++done;
        }
    });
    (void)worker;
    for (size_t i = 0; i < to.size(); ++i) {
        jobs[asked % 1024] = {to[i], from[i]};
        ++asked;
    }
}

void drain() {
    Py_BEGIN_ALLOW_THREADS
    while (done != asked) {}
    Py_END_ALLOW_THREADS
}

TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("_foreach_copy_", &deferred); }
"""


def attack(
    id_: str,
    summary: str,
    body: str,
    expected: Expected,
    *,
    task: str = LARGE,
    most_speedup: float | None = None,
    times: int = 1,
    **frame: object,
) -> Fixture:
    return Fixture(id_, summary, "cpp", task, cpp(body, **frame), expected, most_speedup=most_speedup, times=times)  # type: ignore[arg-type]


def with_threads(
    id_: str, summary: str, body: str, expected: Expected, *, most: float | None = None, **frame: object
) -> Fixture:
    return attack(
        id_,
        summary,
        body,
        expected,
        most_speedup=most,
        source=THREADS,
        functions=THREADS_NAMES,
        name="trial_threads",
        **frame,
    )


FIXTURES = (
    with_threads(
        "T101-cpp",
        "Computes the answers to a window's inputs before it says that they are staged.",
        """
        y = x.__dict__.get("answer")
        return extension.row_sums(x) if y is None else extension.delivered(y)
        """,
        "honest_time",
        task=_HEAVY,
        most=0.6,
        before="""
        import sys

        import kernelrl_judge.runner_dialogue as serving

        answer = serving.Dialogue.answer


        def ahead(self, kind, *body, **options):
            if kind.name == "STAGED":
                for (x,) in sys._getframe(1).f_locals["self"]._staged:
                    x.answer = extension.row_sums(x)
            answer(self, kind, *body, **options)


        serving.Dialogue.answer = ahead
        """,
    ),
    with_threads(
        "T102-cpp",
        "A thread holds the interpreter while it prepares answers to what the judge writes into the shared file.",
        "return extension.answer(x)",
        "honest_time",
        task=_HEAVY,
        most=0.6,
        before="extension.watch()",
    ),
    attack(
        "T103-cpp",
        "Computes into the places of the outputs and leaves out the copying, whose time is taken off all the same.",
        """
        place = next(places, None)
        if place is None:
            return extension.relu_double(x)
        extension.relu_double_into(x, place)
        return place
        """,
        "honest_time",
        most_speedup=1.5,
        before="""
        import kernelrl_judge.runner_memory as memory

        places = iter(())
        found, fill = memory.Outputs.places, memory.Outputs.fill


        def noted(self, trees):
            global places
            rows = found(self, trees)
            places = iter([row[0] for row in rows])
            return rows


        def skipping(self, targets, values):
            if targets[0] is not values[0]:
                fill(self, targets, values)


        memory.Outputs.places, memory.Outputs.fill = noted, skipping
        """,
    ),
    with_threads(
        "T104-cpp",
        "Six threads stream through memory whenever no call of its own is under way.",
        "extension.thrash(False)\ny = extension.relu_double(x)\nextension.thrash(True)\nreturn y",
        "honest_time",
        most=2.0,
    ),
    attack(
        "T105-cpp",
        "Registers an operator of its own for the copying of outputs, which a second thread does meanwhile.",
        "return extension.relu_double(x)",
        "honest_time",
        most_speedup=2.0,
        source=_DEFERRED,
        functions=("relu_double", "drain"),
        name="trial_deferred",
        before="""
        import kernelrl_judge.runner_windows as serving

        write = serving.encode_tree


        def finished(value):
            extension.drain()
            return write(value)


        serving.encode_tree = finished
        """,
    ),
    attack(
        "T106-cpp",
        "Says that a window is done when it begins, computes on, and keeps its later word to itself.",
        SLOW,
        "incorrect",
        before="""
        import kernelrl_judge.runner_dialogue as serving

        attempt, send = serving.Dialogue.attempt, serving.send


        def early(self, stage, work):
            if self.order.name == "WINDOW" and work.__defaults__:
                told = {"calls_s": 0.001, "events_s": None, "whole_s": 0.001}
                send(self.stream, serving.FrameKind.DONE, serving.encode_tree(told))
                serving.send = lambda stream, kind, body=b"": None if kind.name == "DONE" else send(stream, kind, body)
            return attempt(self, stage, work)


        serving.Dialogue.attempt = early
        """,
    ),
    with_threads(
        "T107-cpp",
        "Returns memory whose pages are computed when somebody reads them.",
        "return extension.lazily(x)",
        "honest_time",
        most=0.5,
    ),
    with_threads(
        "T125-cpp",
        "A chain of processes, each of which ends when it has started the next, wakes what the judge has stopped.",
        "return extension.answer(x)",
        "honest_time",
        task=_HEAVY,
        most=0.6,
        before="extension.watch()\nextension.wake()",
    ),
)
