"""Texts that tokenizers get wrong, and random ones."""

import random

HARD = [
    b"",
    b" ",
    b"  ",
    b"a",
    b"Hello, world!",
    b" leading and trailing ",
    b"   three   spaces   everywhere   ",
    b"I'm sure you'll say they've done it, we'd know it's 'S, 'T, 'RE, can't. DON'T! I\xe2\x80\x99m",
    b"\t\ttabs\tand\n\nnew\r\nlines\r\r\n \n  \n   end\n",
    b"x = {'a': [1, 2.5e-3], \"b\": None}  # comment\nif x:\n    return foo(x)->bar[::2] && !baz;\n\t\t}\n",
    b"0 1 12 123 1234 12345 123456 1234567 3.14159 1,000,000.00 0xDEADBEEF 1e10 2\xc2\xb2 \xc2\xbd \xe2\x85\xa7 \xd9\xa1\xd9\xa2\xd9\xa3 \xe0\xa5\xa7\xe0\xa5\xa8\xe0\xa5\xa9",
    b"https://example.org/a/b?c=d&e=%20f#g user.name+tag@mail.example.com C:\\path\\to\\file.txt /usr/lib",
    "naïve café Ångström Łódź Straße ŐŰ ĲSSEL ﬁne ﬂow ǅ ẞ İstanbul ıI".encode(),
    "e\u0301 a\u030a o\u0308\u0304 n\u0303 \u1ea1\u0302 \u0344 q\u0307\u0323 q\u0323\u0307 \u0061\u0315\u0300\u05ae\u0062".encode(),
    "Ελληνικά ΣΊΣΥΦΟΣ Русский язык ЁЖИК українська Ѣ Հայերեն ქართული ᲥᲐᲠᲗᲣᲚᲘ".encode(),
    "עִבְרִית שָׁלוֹם العَرَبِيَّة مرحبا بالعالم فارسی ۱۲۳ \u200fRTL\u200e LTR".encode(),
    "हिन्दी नमस्ते क्षत्रिय বাংলা தமிழ் తెలుగు ไทยภาษา ພາສາລາວ မြန်မာ ខ្មែរ བོད་ཡིག".encode(),
    "中文测试，你好世界。繁體字 日本語のテキスト ひらがなカタカナ ｶﾞｷﾞ 한국어 조선말 각 각".encode(),
    "㍿ ① ⑳ ㈱ ™ ℃ ½ ² ｆｕｌｌ ｗｉｄｔｈ ＡＢＣ１２３ ﷺ ㎏ ﬃ ſ K Å".encode(),
    "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☺︎ 1️⃣ 🧑🏿‍🚀 🫠 👩‍❤️‍💋‍👨".encode(),
    "a\u00a0b\u1680c\u2000d\u2003e\u2009f\u200ag\u2028h\u2029i\u202fj\u205fk\u3000l\u0085m\u000bn\u000co".encode(),
    "zero\u200bwidth\u200cnon\u200djoin\u2060er\ufeffbom\u00adshy\u180emvs\u034fcgj".encode(),
    b"nul\x00 soh\x01 bel\x07 bs\x08 esc\x1b[31m del\x7f c1\xc2\x80\xc2\x9f",
    "private \ue000\uf8ff \U000f0000 nonchar \ufffe\uffff \U0010ffff repl \ufffd".encode(),
    "math ∑∫√∞≠≤ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 ℵ₀ x₁² arrows →⇒ box ┌─┐ block ▁▂▃█ currency €£¥₹₿".encode(),
    "punct: ¿¡«»„“”‘’‚‹›—–…·•※〈〉《》「」『』【】、。！？；：（）｛｝［］〜〰".encode(),
    "𐍈 𒀀𒁀 𓂀 𠀀𠀁 𪜀 𫝀 𫠠 豈 﨑 丽 Ａ𝒜 𞤀𞤁 ⿰⿱ 𝄞 🀀".encode(),
    b"bad \xff\xfe byte \xc3 cut \xe4\xbd two \xf0\x9f\x98 three \xc0\x80 overlong \xed\xa0\x80 surrogate \xf5\x80 end \xf0\x9f",
    b"\x80\x81\xbf\xf8\x88\x80\x80\x80",
    b"a" * 3000,
    b" " * 700,
    b"ab" * 500 + b"!" * 300,
    b"\n" * 100 + b" \n" * 50 + b"\t" * 65 + b"=" * 80 + b"-" * 81,
    ("ha" * 100 + "哈" * 200 + "😂" * 150 + "é" * 100 + "e\u0301" * 50).encode(),
    b"CamelCaseWords and snake_case_words, kebab-case; SCREAMING_SNAKE XMLHttpRequest iPhone15Pro",
    b"supercalifragilisticexpialidocious antidisestablishmentarianism" + b"x" * 120,
    "▁meta▁space ▁ at ▁▁ start▁ Ġbyte Ċlevel ##piece ##x <0x41> <0xE4>".encode(),
    b"<s>Hello</s> <unk> <pad> [CLS] a [SEP] [MASK] [UNK]<|endoftext|>text<|endoftext|> <|im_start|>user\nhi<|im_end|>",
    b"  <s>  spaces </s>  around <mask>  special<mask>tokens <mask>",
    b"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou are.<|eot_id|>",
    b"added ADDED AddedToken addedtokens preadded oneword onewords one-word oneword! [DAY] [day] New York new york today todays",
    b"[DAY]  <mask>  [DAY] [DAY]<mask> <mask>\n[DAY] oneword<mask>oneword [DAY]oneword",
    b"g" * 69 + b" " + b"go" * 31,
    b"ends with space ",
    b" \n",
    b"\n",
    b"\xc2\xa0",
    "…".encode(),
    "\u0301combining first".encode(),
    "\u0301".encode(),
    "\u200d".encode(),
    "\ufeffbom first".encode(),
    b"'",
    b"''''s's'S'lL",
    b"?!?!...!!! ... ,,, ;;; ((([[[{{{ }}}]]])))",
    b"do not say ' that ' n't 's 've 're 'm . , ! ?",
    "mixed中文and English混排テキスト한글ρусский123四五六".encode(),
    "2024-01-31T23:59:59.999Z +1 (555) 010-9999 $1,234.56 50% #hashtag @user".encode(),
    b"The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog again.",
]

_POOLS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", "     ", "\n\r\t\v\f",
    ".,;:!?'\"()[]{}<>-_=+*/\\|@#$%^&`~", "éèêëàâäôöùûüçñßøåæœ", "αβγδεζηθΣς", "абвгдежзЁЖ", "אבגדה\u05b0\u05b1",
    "ابتثج\u064b\u064c", "कखगघ\u093e\u094d", "กขคง\u0e31\u0e34", "中文字符测试你好世界", "ひらがなカタカナー", "한국어각",
    "ㄱㅏ\u1100\u1161\u11a8", "\u0300\u0301\u0323\u0327\u0345\u05ae\u0315", "😀👍🏽❤️\u200d🇩🇪", "\u00a0\u2003\u2028\u3000\u200b\ufeff\u180e\u0085",
    "½²³①Ⅷ٣९〇", "ﬁﬂ㍿㈱ｆ１ｶﾞ™", "▁Ġ#", "\x00\x01\x1b\x7f\x80\x9f\xad", "𝔘𠀀🀀\U0001f9d1", "—–…“”‘’«»、。「」", "ſKÅİıǅẞ",
]
_WORDS = ["the", "The", " the", "ing", "'s", "'LL", "I'm", "don't", "<s>", "</s>", "<unk>", "[CLS]", "[MASK]", "<mask>",
          "<|endoftext|>", "<|im_start|>", "oneword", "added", "ADDED", "New York", "[DAY]", "today", "12345", "  ", "\n\n", " \n",
          "hello", "world", "<0x41>", "##ing", "▁the", "https://", "==", "e\u0301"]


def random_text(seed):
    """A short text of anything; the same for the same seed."""
    r = random.Random(seed)
    parts = []
    for _ in range(r.randint(0, 30)):
        kind = r.random()
        if kind < 0.35:
            parts.append(r.choice(_WORDS))
        elif kind < 0.55:
            parts.append("".join(r.choice(_POOLS[r.randint(0, 3)]) for _ in range(r.randint(1, 8))))
        elif kind < 0.97:
            pool = r.choice(_POOLS)
            parts.append("".join(r.choice(pool) for _ in range(r.randint(1, 6))))
        else:
            parts.append(r.choice(_POOLS[0]) * r.randint(1, 80))
    text = "".join(parts).encode("utf-8", "surrogatepass")
    if r.random() < 0.1 and text:
        text = bytearray(text)
        for _ in range(r.randint(1, 4)):
            text[r.randrange(len(text))] = r.randrange(256)
        text = bytes(text)
    return text
