/* textkit: tokenizers, chat templates and grammars behind plain C.
 *
 * Every function returns a tk_code; on failure a sentence is written to *error when it is not null (free it with
 * tk_bytes_free). No function keeps a pointer that it was given; handles are immutable, unless said, and may be used
 * from any thread. Panics inside never cross this border: they become TK_INTERNAL. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tk_code {
  TK_OK = 0,
  TK_CORRUPT = 1,     /* a file or text from outside does not parse */
  TK_TOO_LARGE = 2,   /* a limit was exceeded */
  TK_UNSUPPORTED = 3, /* well-formed, but not something this library does */
  TK_INVALID = 4,     /* the caller's text or template is at fault */
  TK_INTERNAL = 5,    /* a fault of this library */
  TK_TOO_MANY = 6,    /* more token ids than the caller can use */
  TK_CANCELLED = 7    /* the caller does not want it any more */
} tk_code;

typedef struct tk_bytes {
  uint8_t* data;
  size_t size;
  size_t capacity;
} tk_bytes;
void tk_bytes_free(tk_bytes* bytes);

typedef struct tk_ids {
  uint32_t* data;
  size_t size;
  size_t capacity;
} tk_ids;
void tk_ids_free(tk_ids* ids);

/* ---- tokenizers ---- */

typedef struct tk_tokenizer tk_tokenizer;

typedef enum tk_kind {
  TK_TOKENIZER_JSON = 0, /* first: tokenizer.json */
  TK_VOCAB_MERGES = 1,   /* first: vocab.json, second: merges.txt */
  TK_TIKTOKEN = 2,       /* first: base64 rank lines */
  TK_SENTENCEPIECE = 3   /* first: a serialized ModelProto */
} tk_kind;

/* `options` is a JSON object; its fields stand in src/tok/options.rs. */
tk_code tk_tokenizer_new(tk_kind kind, const uint8_t* first, size_t first_size, const uint8_t* second,
                         size_t second_size, const char* options, size_t options_size, tk_tokenizer** out,
                         tk_bytes* error);
void tk_tokenizer_free(tk_tokenizer* tokenizer);

/* At most `most` ids, else TK_TOO_MANY, which costs little more than `most` ids do where the tokenizer's kind allows.
 * `cancelled` may be null; another thread may store 1 there, atomically: TK_CANCELLED. */
tk_code tk_tokenizer_encode(const tk_tokenizer* tokenizer, const char* text, size_t size, int add_special, size_t most,
                            const uint8_t* cancelled, tk_ids* out, tk_bytes* error);
/* The id of a token's text; -1 when there is none. */
int64_t tk_tokenizer_id(const tk_tokenizer* tokenizer, const char* token, size_t size);
/* The token as the vocabulary spells it; empty when there is no such id. */
tk_code tk_tokenizer_token(const tk_tokenizer* tokenizer, uint32_t id, tk_bytes* out);

/* The bytes of every id: blob[offsets[id], offsets[id+1]); flags: 1 present, 2 special, 4 byte token, 8 added token.
 * Points into the tokenizer. */
typedef struct tk_table {
  const uint8_t* blob;
  size_t blob_size;
  const uint32_t* offsets; /* ids + 1 entries */
  const uint8_t* flags;
  size_t ids;
  int sentencepiece;     /* pieces are text with runs of byte tokens between; else all bytes are joined */
  int strip_first_space; /* one space at the very start of the text is dropped */
} tk_table;
void tk_tokenizer_table(const tk_tokenizer* tokenizer, tk_table* out);

/* ---- chat templates ---- */

typedef struct tk_template tk_template;

typedef struct tk_template_limits {
  uint64_t steps;
  uint32_t depth;
  size_t output_bytes;
  size_t memory_bytes;
} tk_template_limits;

tk_code tk_template_new(const char* source, size_t size, tk_template** out, tk_bytes* error);
void tk_template_free(tk_template* t);
/* `variables` is one JSON object; `unix_seconds` is the local time that strftime_now shows. */
tk_code tk_template_render(const tk_template* t, const char* variables, size_t size, int64_t unix_seconds,
                           const tk_template_limits* limits, tk_bytes* out, tk_bytes* error);

/* ---- grammars ---- */

/* What masks are computed with: the vocabulary of a tokenizer. It, compiled grammars and matchers keep a share of what
 * they were made from, so handles may be freed in any order. */
typedef struct tk_grammar_env tk_grammar_env;
typedef struct tk_grammar tk_grammar;
/* How far one answer has come; the only handle here that changes, for one thread at a time. */
typedef struct tk_matcher tk_matcher;

typedef enum tk_grammar_kind {
  TK_JSON_SCHEMA = 0,
  TK_REGEX = 1,
  TK_LARK = 2,        /* Lark as llguidance knows it, or GBNF (root ::= ...) */
  TK_JSON_OBJECT = 3, /* no text */
  TK_CHOICE = 4,      /* a JSON array of texts */
  TK_STRUCTURAL_TAG = 5
} tk_grammar_kind;

enum {
  TK_GRAMMAR_TIGHT = 1,  /* no white space between tokens of JSON; else at most 40 characters */
  TK_GRAMMAR_CLOSED = 2, /* objects that name properties and say nothing of others allow no others */
  TK_GRAMMAR_LENIENT = 4 /* keywords that cannot be enforced are left out and become warnings */
};

typedef struct tk_grammar_limits {
  size_t text_bytes;
  size_t nodes;          /* parts that a schema becomes */
  uint64_t initial_fuel; /* steps to build the lexer, about 50 a microsecond */
  uint64_t step_fuel;    /* of the lexer for one mask, about 14 a microsecond */
  size_t grammar_size;   /* symbols of the rules */
  size_t lexer_states;   /* 1 to 2 KiB each */
  size_t step_items;     /* of the parser for one mask */
  size_t row_items;      /* of the parser for one place of the text */
  size_t depth;
  uint64_t milliseconds; /* to compile; looked at between its parts, which the other limits bound */
} tk_grammar_limits;
void tk_grammar_limits_default(tk_grammar_limits* out);

/* `ends`: ids that end an answer. `plain`: llguidance without what this library adds, to compare with. Without a
 * tokenizer the vocabulary is the 256 bytes, and id 256 ends. */
tk_code tk_grammar_env_new(const tk_tokenizer* tokenizer, const uint32_t* ends, size_t count, int plain,
                           const tk_grammar_env** out, tk_bytes* error);
void tk_grammar_env_free(const tk_grammar_env* env);
size_t tk_grammar_env_ids(const tk_grammar_env* env); /* bits of a mask */

/* TK_INVALID: the text is wrong; TK_UNSUPPORTED: the message names what cannot be enforced and its JSON pointer;
 * TK_TOO_LARGE: a limit. */
tk_code tk_grammar_compile(const tk_grammar_env* env, tk_grammar_kind kind, const uint8_t* text, size_t size,
                           uint32_t flags, const tk_grammar_limits* limits, const tk_grammar** out, tk_bytes* error);
void tk_grammar_free(const tk_grammar* grammar);
size_t tk_grammar_bytes(const tk_grammar* grammar);                    /* memory, estimated */
tk_code tk_grammar_warnings(const tk_grammar* grammar, tk_bytes* out); /* one a line */

/* At the beginning of an answer. After an error a matcher only gives errors. */
tk_code tk_matcher_new(const tk_grammar* grammar, tk_matcher** out, tk_bytes* error);
void tk_matcher_free(tk_matcher* matcher);
/* The ids that may come next: bit id % 32 of word id / 32; words beyond the vocabulary become zero. */
tk_code tk_matcher_mask(tk_matcher* matcher, uint32_t* words, size_t count, tk_bytes* error);
/* Masks before, between and behind `ids` (count + 1 places of `stride` words each), until one of them is refused or the
 * grammar ends; `filled` of them. The matcher stays where it is. */
tk_code tk_matcher_masks(tk_matcher* matcher, const uint32_t* ids, size_t count, uint32_t* words, size_t stride,
                         size_t* filled, tk_bytes* error);
tk_code tk_matcher_consume(tk_matcher* matcher, const uint32_t* ids, size_t count, tk_bytes* error);
/* How many of the ids could be consumed. */
tk_code tk_matcher_accepts(tk_matcher* matcher, const uint32_t* ids, size_t count, size_t* taken, tk_bytes* error);
/* Takes the last `count` consumed ids back. */
tk_code tk_matcher_rollback(tk_matcher* matcher, size_t count, tk_bytes* error);
/* Ids that have to come next whatever is sampled, at most `most`. */
tk_code tk_matcher_forced(tk_matcher* matcher, uint32_t* out, size_t most, size_t* count, tk_bytes* error);
/* 1: the answer may end here; 2: nothing but an end may follow; 4: failed. */
uint32_t tk_matcher_state(tk_matcher* matcher);

#ifdef __cplusplus
}
#endif
