"""Text for train_gpt.py: a corpus of source code, byte-pair encoding, and needles.

    python gpt_text.py corpus.txt.xz [FOLDER ...]

packs the text files of the folders (default: Go's tree, Python's standard library and the installed
packages) into one archive, for training on a machine that does not have them. A document is the path
of a file, a newline and its text; a NUL byte ends it.
"""

import array
import collections
import concurrent.futures
import functools
import hashlib
import itertools
import lzma
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import torch

SUFFIXES = {".go", ".py", ".md", ".rst", ".txt", ".html"}
MAX_BYTES = 200_000  # of a file: longer ones are mostly tables
BORDER = b"\0"


# ---- corpus --------------------------------------------------------------------------------------


def folders():
    """Source code and documentation that a machine with Go or Python has."""
    found = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    try:
        found.append(subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip())
    except (OSError, subprocess.CalledProcessError):
        pass  # no Go
    return found


def gather(roots):
    """The text files of the folders in the order of their paths, as documents, each text once."""
    seen, documents = set(), {}
    for root in map(pathlib.Path, roots):
        for path in root.rglob("*"):
            inner = path.relative_to(root)
            if path.suffix not in SUFFIXES or "site-packages" in inner.parts:  # those are a root of their own
                continue
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                continue
            name = f"{root.name}/{inner}"
            text = path.read_bytes()
            digest = hashlib.sha256(text).digest()
            if BORDER in text or b"Code generated" in text[:1000] or digest in seen:
                continue
            seen.add(digest)
            documents[name] = name.encode() + b"\n" + text
    return [documents[name] for name in sorted(documents)]


def pack(documents, path):
    with lzma.open(path, "wb", preset=9) as file:
        file.write(BORDER.join(documents))


def read(sources):
    """The documents of an archive, or of folders."""
    if len(sources) == 1 and str(sources[0]).endswith(".xz"):
        with lzma.open(sources[0]) as file:
            return file.read().split(BORDER)
    return gather(sources)


def is_held_out(document):
    """One folder in 25, by the hash of its name: the files of a folder resemble each other."""
    folder = document.split(b"\n", 1)[0].rpartition(b"/")[0]
    return int.from_bytes(hashlib.sha256(folder).digest()[:4], "big") % 25 == 0


def split(documents):
    """(documents to train on, documents held out)"""
    return [d for d in documents if not is_held_out(d)], [d for d in documents if is_held_out(d)]


def summary(documents):
    text = BORDER.join(documents)
    return {"files": len(documents), "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}


# ---- byte-pair encoding --------------------------------------------------------------------------

# A merge never crosses these: words and signs with the blank before them, digits one by one, and a
# newline with the indentation behind it.
WORD = re.compile(rb" ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9\0]+|\n[ \t]*|\s|\0")


def merged(ids, pair, new):
    """ids with `new` in place of each occurrence of the pair."""
    result, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            result.append(new)
            i += 2
        else:
            result.append(ids[i])
            i += 1
    return result


def learn(text, vocabulary):
    """The merges of byte-pair encoding, {pair: id}, most frequent pair first; bytes are 0 to 255."""
    words = [(list(word), count) for word, count in collections.Counter(WORD.findall(text)).items() if count > 3]
    counts, places = collections.Counter(), collections.defaultdict(set)
    for i, (ids, count) in enumerate(words):
        for pair in itertools.pairwise(ids):
            counts[pair] += count
            places[pair].add(i)
    merges = {}
    for new in range(256, vocabulary):
        best = max(counts, key=counts.get)
        for i in places.pop(best):
            ids, count = words[i]
            for pair in itertools.pairwise(ids):
                counts[pair] -= count
            ids[:] = merged(ids, best, new)
            for pair in itertools.pairwise(ids):
                counts[pair] += count
                places[pair].add(i)
        del counts[best]
        merges[best] = new
    return merges


class Encoder:
    """Text to token ids by the merges that learn() found."""

    def __init__(self, merges):
        self.merges = merges
        self.word = functools.cache(self.word)  # most words occur again

    def word(self, text):
        ids = list(text)
        while len(ids) > 1:
            pair = min(itertools.pairwise(ids), key=lambda pair: self.merges.get(pair, sys.maxsize))
            if pair not in self.merges:
                break
            ids = merged(ids, pair, self.merges[pair])
        return ids

    def __call__(self, text):
        return array.array("H", itertools.chain.from_iterable(map(self.word, WORD.findall(text))))

    def vocabulary(self):
        """The bytes of each token."""
        tokens = [bytes([i]) for i in range(256)]
        for left, right in self.merges:
            tokens.append(tokens[left] + tokens[right])
        return tokens


def _encode(merges, text):
    return Encoder(merges)(text)


def encode(merges, documents):
    """The tokens of all documents, int32, each document with its border. One process for each core."""
    size = -(-len(documents) // (4 * os.cpu_count()))
    parts = [BORDER.join(documents[i : i + size]) + BORDER for i in range(0, len(documents), size)]
    if sum(map(len, parts)) < 1 << 20:
        encoded = [_encode(merges, part) for part in parts]
    else:
        with concurrent.futures.ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
            encoded = list(pool.map(functools.partial(_encode, merges), parts))
    return torch.cat([torch.frombuffer(part, dtype=torch.uint16).to(torch.int32) for part in encoded])


# ---- needles -------------------------------------------------------------------------------------


class Needles:
    """Lines "remember: w1 w2 w3 w4 w5 w6" of random words, written over the text twice.

    The first two words are the key and the others the value. At the second occurrence the value can
    only be copied from the first.
    """

    KEY, VALUE = 2, 4
    SLOT = 16  # needles begin at multiples of it

    def __init__(self, merges, device):
        encoder = Encoder(merges)
        words = [i for i, token in enumerate(encoder.vocabulary()) if re.fullmatch(rb" [a-z]{3,}", token)]
        self.words = torch.tensor(words[len(words) // 4 :], device=device)  # merged later, so they are rarer in text
        self.marker = torch.tensor(encoder(b"\nremember:").tolist(), device=device)
        if len(self.marker) + self.KEY + self.VALUE > self.SLOT:
            raise ValueError(f"a needle has {len(self.marker) + self.KEY + self.VALUE} tokens, over {self.SLOT}")

    def anywhere(self, rows, length, pairs, source):
        """Slots of both occurrences of each needle, [rows, pairs, 2], anywhere in a row."""
        order = torch.rand(rows, length // self.SLOT, generator=source, device=source.device).argsort(1)
        return order[:, : 2 * pairs].view(rows, pairs, 2).sort(-1).values

    def by_depth(self, rows, length, pairs, source):
        """The same: needle i lies in the i-th part of the row, and all are asked for at the end, in any order."""
        slots = length // self.SLOT - pairs
        random = torch.rand(rows, pairs, generator=source, device=source.device)
        first = ((torch.arange(pairs, device=source.device) + random) * slots / pairs).long()
        second = slots + torch.rand(rows, pairs, generator=source, device=source.device).argsort(1)
        return torch.stack([first, second], -1)

    def hide(self, tokens, slots, source):
        """Writes needles over the tokens [rows, length] and returns their places [rows, pairs, 2, words]."""
        rows, pairs, _ = slots.shape
        chosen = torch.randint(len(self.words), (rows, pairs, self.KEY + self.VALUE), generator=source,
                               device=source.device)  # fmt: skip
        needle = torch.cat([self.marker.expand(rows, pairs, -1), self.words[chosen]], -1)
        places = self.SLOT * slots[..., None] + torch.arange(needle.shape[-1], device=tokens.device)
        tokens.scatter_(1, places.flatten(1), needle[:, :, None].expand_as(places).flatten(1).to(tokens.dtype))
        return places[..., len(self.marker) :]

    def values(self, places):
        """The places of the values that can be copied, [rows, pairs, value]."""
        return places[:, :, 1, self.KEY :]

    def unpredictable(self, places):
        """The places of words that no model can predict: all of the first occurrence, and the key of the second."""
        return torch.cat([places[:, :, 0], places[:, :, 1, : self.KEY]], -1).flatten(1)


if __name__ == "__main__":
    packed = gather(sys.argv[2:] or folders())
    pack(packed, sys.argv[1])
    print(summary(packed))
