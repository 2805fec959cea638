// Compiled grammars kept for the next request that brings the same text.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "content/grammar/grammar.h"

namespace tern::content {

struct GrammarCompilerOptions {
  GrammarLimits limits;
  size_t max_bytes = 256u << 20;  // of kept grammars, as they estimate themselves
  size_t max_entries = 4096;
  int at_once = 2;  // grammars that are compiled at a time; further callers wait
};

struct GrammarCompilerStats {
  uint64_t hits = 0;    // found, or compiled by another caller meanwhile
  uint64_t misses = 0;  // compiled
  size_t entries = 0;
  size_t bytes = 0;
};

// Any thread; compile() may take the time that the limits allow, so it is called on a pool of the CPU's. Errors of a
// text are kept like grammars, other faults are not.
class GrammarCompiler {
 public:
  using Result = Expected<std::shared_ptr<const CompiledGrammar>>;
  using MakeVocabulary = std::function<Expected<std::shared_ptr<const GrammarVocabulary>>()>;

  // The vocabulary is made with the first grammar: it takes time and memory that most servers never need.
  GrammarCompiler(MakeVocabulary make_vocabulary, const GrammarCompilerOptions& options);

  Result compile(const GrammarSpec& spec);
  // What is kept already; null: compile() has to work or to wait.
  std::shared_ptr<const CompiledGrammar> find(const GrammarSpec& spec);
  GrammarCompilerStats stats() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;  // null: `error`
    Error error;
    size_t bytes = 0;
    bool ready = false;
    bool listed = false;  // in order_
    std::list<Entry*>::iterator place;
  };
  static Result result(const Entry& entry);
  Result make(const GrammarSpec& spec);
  void keep(const std::shared_ptr<Entry>& entry);
  void drop(Entry& entry);

  const MakeVocabulary make_vocabulary_;
  const GrammarCompilerOptions options_;
  std::mutex vocabulary_mutex_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;  // null: no grammar yet

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;
  std::list<Entry*> order_;  // the last used first
  int running_ = 0;
  GrammarCompilerStats stats_;
};

}  // namespace tern::content
