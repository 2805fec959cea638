/* textkit: grammars. What textkit.h says of codes, errors and handles holds here too. */
#pragma once

#include "textkit.h"

#ifdef __cplusplus
extern "C" {
#endif

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
