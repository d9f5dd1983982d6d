"""Language models as far as decoding them goes: their weights, and what a token of context takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LanguageModel:
    """A model's size, from its published configuration. Keys and values are kept in 16 bits, a head group at a time."""

    parameters: float
    layers: int
    key_value_heads: int
    head_width: int

    def weights_gb(self, bits_per_weight: float) -> float:
        return self.parameters * bits_per_weight / 8 / 1e9

    @property
    def cache_bytes_per_token(self) -> int:
        """Return 2 (keys, values) × layers × heads × width × 2 bytes."""
        return 2 * self.layers * self.key_value_heads * self.head_width * 2


LANGUAGE_MODELS = {
    "llama-3-8b": LanguageModel(8.03e9, 32, 8, 128),
    "llama-3-70b": LanguageModel(70.6e9, 80, 8, 128),
    "llama-3.1-405b": LanguageModel(405e9, 126, 8, 128),
}
