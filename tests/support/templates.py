"""Chat templates as models come with them, and tokenizers with special tokens."""

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlkit.language.chat import ChatTemplate
from rlkit.language.gguf_tokenizer import QWEN2
from rlkit.language.tokenizer import Tokenizer as Ours
from rlkit.language.tokenizer import train_tokenizer

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{{ message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and ns.last == messages|length - 1 %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|im_start|>system\\n\\nToday: " + date_string + "\\n\\n" }}
{{- system_message + "<|im_end|>" }}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n\\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n\\n' }}
{%- endif %}"""
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}"
    "{% generation %}{{ message['content'] + eos_token}}{% endgeneration %}{% endif %}{% endfor %}"
)
JSON = (
    "{% for message in messages if message.role != 'x' %}{% if loop.index > 9 %}{% break %}{% endif %}"
    "  {{ message | tojson(indent=2) }}\n{% if tools %}never{% endif %}\n   {% set a = 1 %}\n{% endfor %}[/INST]"
)
TEMPLATES = {"chatml": CHATML, "smollm2": SMOLLM2, "qwen3": QWEN3, "llama3": LLAMA3, "mistral": MISTRAL, "json": JSON}
LEARNED = [
    "The cat has 12 legs, 3.5 tails and 1,234 lives.\n\n  It's 'well'. ",
    "Ünïcödé ñandú 東京都 한국어 кот im_end",
] * 3
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|fim_prefix|>", "<s>"]
PIECES = ["<think>", "</think>", "<tool_call>"]  # known as one piece, and not special


def qwen() -> Tokenizer:
    """A small tokenizer with what Qwen's has: its pattern, composed characters, special tokens and other pieces."""
    core = train_tokenizer(LEARNED, 330).core
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"), to_bytes])
    core.normalizer = normalizers.NFC()
    core.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    core.add_tokens([AddedToken(text, normalized=False) for text in PIECES])
    return core


def ours(core: Tokenizer, template: str) -> Ours:
    end = core.token_to_id("<|im_end|>")
    names = (("bos_token", "<s>"), ("eos_token", "<|im_end|>"))
    return Ours(core, end, end, template=ChatTemplate(template, "a test", names))


def theirs(core: Tokenizer, template: str) -> PreTrainedTokenizerFast:
    found = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="<|im_end|>")
    found.chat_template = template
    return found
