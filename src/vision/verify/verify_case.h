// Reference cases of every kind: text cases as model/verify runs them, picture cases from files to greedy tokens.
#pragma once

#include <string>

#include "model/verify/verify_case.h"

namespace tern::vision {

// As model::verify_case. A picture case checks pixels, tower, merged embeddings, positions, logits and greedy tokens,
// and that results depend neither on chunks nor on neighbours in a batch or a tower call.
Expected<model::CaseReport> verify_case(const std::string& folder, const model::VerifyOptions& options,
                                        device::Device& device);

}  // namespace tern::vision
