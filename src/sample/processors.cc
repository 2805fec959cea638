#include "sample/processors.h"

#include "ops/thinking.h"

namespace tern::sample {
namespace {

constexpr Processor kProcessors[] = {
    {"mask", kMask,
     [](const ProcessorInput& in, device::Stream s) {
       return ops::logit_mask({in.rows, in.masks}, s);
     }},
    {"bias", kBias, [](const ProcessorInput& in, device::Stream s) { return ops::logit_bias(in.rows, s); }},
    {"min_tokens", kMinTokens,
     [](const ProcessorInput& in, device::Stream s) { return ops::logit_min_tokens(in.rows, s); }},
    {"penalties", kPenalties,
     [](const ProcessorInput& in, device::Stream s) { return ops::logit_penalties(in.rows, s); }},
    {"bad_words", kBadWords,
     [](const ProcessorInput& in, device::Stream s) { return ops::logit_bad_words(in.rows, s); }},
    {"thinking", kThinking, [](const ProcessorInput& in, device::Stream s) { return ops::thinking_force(in.rows, s); }},
};

}  // namespace

std::span<const Processor> processors() { return kProcessors; }

}  // namespace tern::sample
