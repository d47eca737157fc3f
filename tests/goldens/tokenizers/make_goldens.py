"""Makes the small tokenizers of this folder and their goldens with Hugging Face tokenizers.

  pip install tokenizers==0.23.3
  make_goldens.py

For each kind: NAME.json, the tokenizer, trained on the texts below, and NAME.golden.json, for each text of texts.json what
Hugging Face makes of it: [ids, ids with special tokens (null: the same), text, text without special tokens (null: the
same)]. Then come rows of random ids, which no text gives: [ids, null, text, text without special tokens]. Text with NUL
stands as {"hex": ...}.
"""

import json
import os
import random
import struct
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import texts

HERE = os.path.dirname(os.path.abspath(__file__))

PROSE = """The rowers pulled together, and the long ship went over the grey water as if it weighed nothing at all.
Nobody spoke. It's the helmsman's voice that they'd follow, not the drum; they've known it since they were boys.
When the wind came up in the afternoon they shipped the oars, set the sail, and slept where they sat, wrapped in
their cloaks. There are 12 oars on each side, 24 in all, and 3 men don't fill the place of 4. In 1843 it was 10,500.
def pull(oars, force=1.0):\n    total = 0\n    for oar in oars:\n        total += oar.pull(force) * 2.5\n    return total\n
Die Ruderer zogen gemeinsam, und das Schiff fuhr über das Wasser. Les rameurs tiraient ensemble, et le bateau glissait
sur l'eau. Los remeros tiraban juntos. Гребцы гребли вместе, и корабль шёл по воде. Οι κωπηλάτες τραβούσαν μαζί.
水手们一起划桨，船在水上行驶。漕ぎ手たちは一緒に漕いだ。노 젓는 사람들이 함께 노를 저었다. سحب المجدفون معًا. נמשכו המשוטים יחד.
"""

GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]
# Constructs that Oniguruma and PCRE2 read differently.
ODD = (r"(?<word>\h{2}+)|[a-z&&[^aeiou]]{2,}?|[^\W\d_]+(?=\s|$)|(?m:<.*?>)|\b\d{,2}\b|a(?i)b|c\B|[[:punct:]&&[^<>]]|\p{Alpha}"
       r"|\p{^Han}\p{Han}++|^\s+|[\S&&\P{L}]|\u3042|\x{4e00}|.")


def hard():
    """The texts of the goldens: the hard ones with long runs cut."""
    return [t if len(t) < 600 else t[:300] for t in texts.HARD] + [texts.random_text(s) for s in range(40)]


def corpus():
    # NUL is left out: JSON strings with it are refused by our reader.
    return [PROSE] * 20 + [line for line in PROSE.split("\n")] * 10 + [
        t.decode("utf-8", "replace").replace("\0", "") for t in hard()] * 2


def charsmap(pairs):
    """A precompiled_charsmap of SentencePiece: a double array of Darts-clone, and the replacements."""
    trie = {}
    blob, offsets = b"", {}
    for source, target in sorted(pairs.items()):
        if target not in offsets:
            offsets[target] = len(blob)
            blob += target.encode() + b"\0"
        node = trie
        for byte in source.encode():
            node = node.setdefault(byte, {})
        node[-1] = offsets[target]
    units, taken = {0: 0}, {0}

    def place(node, at):
        labels = sorted(0 if b == -1 else b for b in node)
        base = 1
        while any((base ^ l) in taken for l in labels) or (at ^ base) >= 1 << 21:
            base += 1
        for l in labels:
            taken.add(base ^ l)
        units[at] |= (at ^ base) << 10 | (256 if -1 in node else 0)
        for b, child in node.items():
            if b == -1:
                units[base] = child | 1 << 31
            else:
                units[base ^ b] = b
        for b, child in node.items():
            if b != -1:
                place(child, base ^ b)

    place(trie, 0)
    size = (max(units) | 255) + 1
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(size))
    return struct.pack("<I", len(array)) + array + blob


def nfkc_charsmap():
    """A part of SentencePiece's nmt_nfkc rules."""
    pairs = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u2003": " ", "\u3000": " ", "\u200b": " ", "\ufeff": "",
             "\u2028": " ", "e\u0301": "é", "a\u030a": "å", "\r\n": " ", "…": "...", "\x1b": "", "\u00ad": ""}
    for c in "™℃½²ﬁﬂﬃſKÅ㍿①⑳㈱ｆｕｌｗｄＡＢＣ１２３ﷺ㎏ｶﾞǅĲ":
        pairs[c] = unicodedata.normalize("NFKC", c)
    return charsmap(pairs)


def token(content, **options):
    return AddedToken(content, **options)


ADDED = [token("oneword", single_word=True, normalized=False), token("New York", normalized=True),
         token("[DAY]", lstrip=True, rstrip=True, normalized=False), token("ADDED", normalized=True),
         token("today", normalized=True, single_word=True)]


def train(tokenizer, trainer, special, added=ADDED):
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([t if isinstance(t, AddedToken) else token(t, special=True, normalized=False)
                                  for t in special])
    tokenizer.add_tokens(added)
    return tokenizer


def byte_level(pattern=None, special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"), size=700, split=True, **options):
    t = Tokenizer(models.BPE(**options))
    steps = []
    for p in [pattern] if isinstance(pattern, str) else pattern or []:
        steps.append(pre_tokenizers.Split(Regex(p), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None and split))
    t.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=list(special), show_progress=False), special


def gpt2():
    return train(*byte_level())


def roberta():
    t, trainer, special = byte_level(special=("<s>", "<pad>", "</s>", "<unk>"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t = train(t, trainer, list(special) + [token("<mask>", lstrip=True, special=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def llama3():
    t, trainer, special = byte_level(LLAMA3, special=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                                      "<|eot_id|>"))
    t = train(t, trainer, special)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])])
    # Llama 3 takes whole words from the vocabulary, also those that merging would not reach.
    data = json.loads(t.to_str())
    data["model"]["ignore_merges"] = True
    data["model"]["merges"] = data["model"]["merges"][:-60]
    return Tokenizer.from_str(json.dumps(data))


def qwen2():
    t, trainer, special = byte_level(QWEN2)
    t.normalizer = normalizers.NFC()
    return train(t, trainer, special)


def gpt4o():
    return train(*byte_level(GPT4O, special=("<|endoftext|>", "<|endofprompt|>")))


def deepseek():
    return train(*byte_level(DEEPSEEK))


def odd():
    return train(*byte_level(ODD))


def falcon():
    t, trainer, special = byte_level()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return train(t, trainer, special)


def byte_normalizer():
    """Bytes made characters by the normalizer, so that added tokens are too."""
    t, trainer, special = byte_level(special=("<|endoftext|>",))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.ByteLevel()])
    t.pre_tokenizer = pre_tokenizers.Split(Regex("Ġ?[^Ġ]+|Ġ+"), "isolated")
    return train(t, trainer, special)


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def metaspace_bpe():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    return t, trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, limit_alphabet=150,
                                  show_progress=False), ["<unk>", "<s>", "</s>"]


def without_byte_tokens(t):
    """Bytes are tokens of the model only, not added ones."""
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def bos(t):
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return t


def llama2():
    t, trainer, special = metaspace_bpe()
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return bos(without_byte_tokens(train(t, trainer, special, added=[])))


def llama2_metaspace():
    t, trainer, special = metaspace_bpe()
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return bos(without_byte_tokens(train(t, trainer, special)))


def gemma():
    t, trainer, special = metaspace_bpe()
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return bos(without_byte_tokens(train(t, trainer, special, added=[token("\n\n", normalized=False), token("▁▁")])))


def unigram_trainer(special, size=600):
    return trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False)


def t5():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(nfkc_charsmap()),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    t = train(t, unigram_trainer(special), special)
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                     special_tokens=[("</s>", 1)])
    return t


def albert():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Strip(), normalizers.Nmt()])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    t.decoder = decoders.Metaspace(prepend_scheme="never")
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]"] + BYTES
    t = train(t, unigram_trainer(special, 800), special[:4])
    data = json.loads(t.to_str())
    data["model"]["byte_fallback"] = True
    t = without_byte_tokens(Tokenizer.from_str(json.dumps(data)))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def ties():
    """Many ways of the same score: which one wins depends on the last bit of the scores."""
    t = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -2.0122928619384766), ("g", -7.407997131347656),
                                  ("gg", -10.809488296508789), ("o", -7.407997131347656), ("go", -10.809488296508789),
                                  ("og", -10.809488296508789), ("ogo", -14.210979461669922)], 0, False))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    return t


def bert(lowercase, **options):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=60))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase, **options)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=lowercase)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = train(t, trainers.WordPieceTrainer(vocab_size=800, special_tokens=special, limit_alphabet=200, show_progress=False),
              special)
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def bert_uncased():
    return bert(True)


def bert_cased():
    return bert(False, strip_accents=True, handle_chinese_chars=False)


def wordlevel():
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.Strip(left=False)])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.CharDelimiterSplit("_"), pre_tokenizers.Digits(True),
        pre_tokenizers.Punctuation("merged_with_next"), pre_tokenizers.FixedLength(7)])
    return train(t, trainers.WordLevelTrainer(vocab_size=1200, special_tokens=["[UNK]"], show_progress=False), ["[UNK]"])


def clip():
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                         normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.BPEDecoder("</w>")
    special = ["<|startoftext|>", "<|endoftext|>"]
    t = train(t, trainers.BpeTrainer(vocab_size=700, special_tokens=special, end_of_word_suffix="</w>",
                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False), special)
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), add_prefix_space=False)
    return t


def prefix_bpe():
    """Characters within words with a prefix, unknown ones not fused, and the tokens of CTC."""
    t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", fuse_unk=False))
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s"), "merged_with_previous", invert=False)
    t.decoder = decoders.CTC("[PAD]", "|", True)
    return train(t, trainers.BpeTrainer(vocab_size=600, special_tokens=["[UNK]", "[PAD]"], limit_alphabet=120,
                                        continuing_subword_prefix="##", show_progress=False), ["[UNK]", "[PAD]"])


KINDS = [gpt2, roberta, llama3, qwen2, gpt4o, deepseek, odd, falcon, byte_normalizer, llama2, llama2_metaspace, gemma, t5,
         albert, ties, bert_uncased, bert_cased, wordlevel, clip, prefix_bpe]


def random_ids(t, seed):
    """Ids of all kinds, with runs of those that stand for bytes, and a few that no token has."""
    r = random.Random(seed)
    size = t.get_vocab_size()
    lone = [i for i in range(size) if len(t.id_to_token(i) or "") == 1 or (t.id_to_token(i) or "").startswith("<0x")]
    ids = []
    for _ in range(r.randint(1, 12)):
        pool = lone if lone and r.random() < 0.6 else range(size + 3)
        ids += [r.choice(pool) for _ in range(r.randint(1, 6))]
    return ids


def text_json(text):
    return {"hex": text.encode().hex()} if "\0" in text else text


def write(name, value, rows=False):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        if rows:
            f.write("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False, separators=(",", ":")) for v in value) + "\n]\n")
        else:
            f.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    cases = hard()
    write("texts.json", [c.hex() for c in cases], rows=True)
    write("names.json", [k.__name__ for k in KINDS])
    for kind in KINDS:
        t = kind()
        data = json.loads(t.to_str())
        if data["model"]["type"] == "BPE" and kind in (gpt2, llama2):  # the older form of merges
            data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
        write(kind.__name__ + ".json", data)
        t = Tokenizer.from_str(json.dumps(data))
        rows = []
        for case in cases:
            string = case.decode("utf-8", "replace")
            ids = t.encode(string, add_special_tokens=False).ids
            special = t.encode(string, add_special_tokens=True).ids
            text, plain = t.decode(special, skip_special_tokens=False), t.decode(special, skip_special_tokens=True)
            rows.append([ids, None if special == ids else special, text_json(text),
                         None if plain == text else text_json(plain)])
        for seed in range(40):
            ids = random_ids(t, seed)
            text, plain = t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)
            rows.append([ids, None, text_json(text), None if plain == text else text_json(plain)])
        write(kind.__name__ + ".golden.json", rows, rows=True)
        print(kind.__name__, t.get_vocab_size())


if __name__ == "__main__":
    main()
