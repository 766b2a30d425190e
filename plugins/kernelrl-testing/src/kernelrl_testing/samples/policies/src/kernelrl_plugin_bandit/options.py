"""Options of the policy `bandit`."""

import attrs

from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig


@attrs.frozen
class BanditConfig(PolicyConfig):
    """Options and capabilities."""

    replies: tuple[str, ...] = ("no kernel", "no kernel either")
    """The replies to every prompt."""

    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(losses=frozenset({"importance_sampling"}), deterministic=True, logprobs=True)
