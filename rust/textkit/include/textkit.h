/* textkit: tokenizers and chat templates behind plain C; grammars: textkit_grammar.h.
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

#ifdef __cplusplus
}
#endif
