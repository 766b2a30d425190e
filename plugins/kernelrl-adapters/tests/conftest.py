from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelrl_adapters.shared import close_background, recipe_of
from kernelrl_core.api.components import registry

TESTS = Path(__file__).parents[3] / "tests"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
prompt:    {template: brief, shots: zero}
sampling:  {max_tokens: 200}
rewards:   {correct: {use: fake, weight: 0.7}}
"""

sys.path.append(str(TESTS / "servers"))


@pytest.fixture(autouse=True)
def fake_plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the fake plugin importable during the test only: other tests count the plugins."""
    monkeypatch.syspath_prepend(TESTS / "fakes")
    _forget()
    yield
    close_background()
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    registry.cache_clear()
    recipe_of.cache_clear()


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Directory of a tokenizer with one token per byte."""
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    directory = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=bytes_alone, eos_token="<|end|>").save_pretrained(directory)
    return str(directory)


@pytest.fixture
def fake_recipe(tmp_path: Path) -> str:
    """Path of a recipe of fakes: a reply with `return 'right'` scores 0.7."""
    (tmp_path / "fake.yaml").write_text(RECIPE)
    return str(tmp_path / "fake.yaml")
