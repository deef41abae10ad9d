"""Sample texts that come with an artifact: varied, own-written, the same on every machine.

Templates and parts are combined deterministically, so a sample set has a digest, and lengths reach
from a word to beyond the usual windows.
"""

from __future__ import annotations

import itertools
import random

_SUBJECTS = (
    "the invoice for March", "my account", "the mobile app", "two-factor sign-in", "the weekly report", "our data export",
    "the refund for order 48213", "the shared calendar", "the VPN client", "the printer on floor 3", "the payment page",
    "the search index", "customer 7791", "the backup of last night", "the new laptop", "the API key", "the delivery to Lyon",
)  # fmt: skip
_FAULTS = (
    "shows the wrong total", "cannot be opened", "is locked after three attempts", "crashes on start", "arrived damaged",
    "times out after thirty seconds", "lists every entry twice", "lost the changes of yesterday", "asks for a password again and again",
    "returns an empty page", "is in the wrong language", "was charged twice", "has not been updated since Monday",
)  # fmt: skip
_WISHES = (
    "Please look into it today.", "Can someone call me back?", "Where do I find the setting for that?", "I need a replacement before Friday.",
    "Is this a known problem?", "We would like to cancel the contract.", "Which plan includes this?", "Thank you for the quick answer last time!",
)  # fmt: skip
_FACTS = (
    "The river rose by forty centimetres overnight, and the lower bridge was closed to lorries.",
    "Water boils at a lower temperature at high altitude because the air pressure is lower.",
    "The council approved the budget by nine votes to four after a debate of three hours.",
    "A binary search halves the remaining range at each step, so a million entries need twenty comparisons.",
    "The violinist played the second movement more slowly than the score suggests.",
    "Bees communicate the direction of a source of nectar by the angle of their dance.",
    "Central banks raise interest rates to slow inflation, which makes loans dearer.",
    "The recipe asks for two eggs, 120 g of sugar and the zest of one lemon.",
    "Antibiotics act against bacteria, not against viruses such as the one that causes influenza.",
    "In 1969 a crew of three left for the Moon, and two of them walked on it.",
    "Glaciers carve valleys with a round bottom, rivers carve them with a sharp one.",
    "The striker scored twice in the last ten minutes and the match ended three to two.",
)  # fmt: skip
_ODD = (
    "SELECT name, total FROM orders WHERE total > 100 ORDER BY total DESC;", "def area(r): return 3.14159 * r ** 2",
    "ERROR 2024-02-30T25:61:00 worker-7 connection reset by peer (errno 104)", "https://example.com/a/b?q=1&r=%20x", "42", "ok",
    "Wie lange dauert die Lieferung nach Österreich?", "¿Cómo cambio la contraseña de mi cuenta?", "Où puis-je télécharger la facture ?",
    "配送にはどのくらいかかりますか。", "Можно ли вернуть товар без чека?", "🙂 thanks!!", "A", "ALL CAPS: PLEASE STOP CALLING ME",
    "x = [1, 2, 3]; y = {k: v for k, v in zip('abc', x)}", "tel. +41 44 668 18 00, ext. 12", "price: € 1'299.50 (incl. VAT)",
)  # fmt: skip


USUAL_TOKENS = 128
"""Windows up to this get the plain set alone: its texts fill them."""
LONG = ((55, 2), (200, 2), (400, 2), (900, 2), (1800, 2), (3600, 1), (7500, 1))
"""At most so many tokens of a document, and how many of it, for windows that hold it; the first fills a sparse bucket."""
TOKENS_PER_WORD = 1.4
"""On the safe side: BERT's vocabulary makes 1.2 of these texts, and one that makes more still fits its window."""


def sample_texts(count: int = 384, seed: int = 7, max_tokens: int = USUAL_TOKENS) -> list[str]:
    """``count`` distinct texts; a quarter short, a quarter of a sentence, a quarter a paragraph, the rest long.

    A window of ``max_tokens`` above the usual gets some documents more, so that every length it holds is compared.
    """
    if max_tokens <= USUAL_TOKENS:
        return _texts(count, seed)
    documents = [_document(tokens, number) for tokens, many in LONG if tokens <= max_tokens for number in range(many)]
    return _texts(count, seed) + documents


def _texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)  # noqa: S311 -- reproducible, not secret
    complaints = [f"{s[0].upper()}{s[1:]} {f}." for s, f in itertools.product(_SUBJECTS, _FAULTS)]
    rng.shuffle(complaints)
    texts = list(_ODD) + list(_FACTS)
    makers = (_short, _ticket, _paragraph, _long)
    for index in itertools.count():
        if len(texts) >= count:
            break
        text = makers[index % len(makers)](rng, complaints[index % len(complaints)])
        if text not in texts:
            texts.append(text)
    return texts[:count]


def _short(rng: random.Random, complaint: str) -> str:
    return " ".join(complaint.rstrip(".").split()[: rng.randint(2, 7)])


def _ticket(rng: random.Random, complaint: str) -> str:
    return f"{complaint} {rng.choice(_WISHES)}"


def _paragraph(rng: random.Random, complaint: str) -> str:
    return " ".join([complaint, *rng.sample(_FACTS, 3), rng.choice(_WISHES)])


def _long(rng: random.Random, complaint: str) -> str:
    return " ".join([complaint, *rng.sample(_FACTS, rng.randint(5, len(_FACTS))), *rng.sample(_WISHES, 3)])


def _document(tokens: int, number: int) -> str:
    """Sentences in an order of its own, about ``tokens`` long."""
    rng = random.Random(f"{tokens}/{number}")  # noqa: S311 -- reproducible, not secret
    words: list[str] = []
    while len(words) * TOKENS_PER_WORD < tokens:
        subject, fault = rng.choice(_SUBJECTS), rng.choice(_FAULTS)
        words += f"{rng.choice(_FACTS)} {subject[0].upper()}{subject[1:]} {fault}. {rng.choice(_WISHES)}".split()
    return " ".join(words[: int(tokens / TOKENS_PER_WORD)])
