"""`paceline demo --tiny`: the same loop on a toy target that is made on the spot, in minutes.

The toy is a Llama of many narrow layers that says one word after another in a fixed order, which a
draft can learn in seconds and the context alone cannot tell: the order has no repeats. Its second
release knows another order. It shows that the machinery turns, and survives being killed; its
figures say nothing of real models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from cli.demo_story import JUDGING_TINY, Story, written
from speculation.records import Prompt

WORDS = 256
LAYERS = 24  # a forward has to cost much more than a draft's single layer, as in a real target
HIDDEN = 64
CUT = 2  # words that follow each other in both releases
PROMPT_WORDS = 6
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def tiny_story(*, prompts: int | None) -> Story:
    """The demo's story on the toy."""
    evaluation = prompts or JUDGING_TINY
    return Story(
        first_release=lambda out: write_toy(out, order(1)),
        second_release=lambda first, out, run: write_toy(out, order(2)),
        initial_draft=None,
        prompts=lambda target: {
            "train": toy_prompts("train", 128),
            "evaluation": toy_prompts("evaluation", evaluation),
            "traffic": toy_prompts("traffic", 16),
        },
        evaluation_prompts=evaluation,
        max_tokens=24,
        recipe={
            "responses": 128,
            "max_tokens": 24,
            "draft_vocab": WORDS,
            "epochs": 16,
            "learning_rate": 0.003,
        },
    )


def order(release: int) -> list[int]:
    """The toy's words in the order a release says them: one cycle through all of them."""
    words = list(range(WORDS))
    random.Random(0).shuffle(words)
    if release == 1:
        return words
    pieces = [words[start : start + CUT] for start in range(0, WORDS, CUT)]
    random.Random(release).shuffle(pieces)
    return [word for piece in pieces for word in piece]


def toy_prompts(name: str, count: int) -> Sequence[Prompt]:
    """Prompts of random words; the target goes on from the last one."""
    chance = random.Random(name)
    texts = [
        " ".join(f"w{chance.randrange(WORDS):03d}" for _ in range(PROMPT_WORDS))
        for _ in range(count)
    ]
    return [
        Prompt(f"{name}-{place}", ({"role": "user", "content": text},))
        for place, text in enumerate(texts)
    ]


def write_toy(out: Path, words: Sequence[int]) -> Path:
    """The toy target as a Hugging Face folder, whole or not at all."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    def write(folder: Path) -> None:
        table = {f"w{word:03d}": word for word in range(WORDS)} | {"<end>": WORDS}
        bare = Tokenizer(models.WordLevel(table, unk_token="<end>"))
        bare.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=bare, eos_token="<end>", pad_token="<end>", unk_token="<end>"
        )
        tokenizer.chat_template = TEMPLATE
        tokenizer.save_pretrained(folder)
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=WORDS + 1,
            hidden_size=HIDDEN,
            intermediate_size=2 * HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=HIDDEN // 4,
            max_position_embeddings=512,
            tie_word_embeddings=False,
            eos_token_id=WORDS,
            bos_token_id=WORDS,
            pad_token_id=WORDS,
        )
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            states = torch.randn(WORDS + 1, HIDDEN)
            model.model.embed_tokens.weight.copy_(states)
            following = torch.tensor([*words[1:], words[0]])
            model.lm_head.weight.zero_()
            model.lm_head.weight[following] = states[torch.tensor(list(words))] / HIDDEN**0.5
        model.save_pretrained(folder)

    return written(out, write)
