// Few rows: a cluster of blocks per row, for the plain case of the draw (sample_team.cu).
#pragma once

#include "cuda/context.h"
#include "ops/sample.h"

namespace tern::cuda {

inline constexpr int kMostTeam = 8, kTeamRows = 66;  // blocks of a row, and the most rows that it pays for

struct TeamSpace;
// Bytes of workspace for kTeamRows rows.
size_t team_workspace();
// Whether this GPU has clusters and the rows are few. Rows that ask for top-k, min-p or probabilities are drawn by the
// first block of their team alone.
bool team_fits(const ops::SampleParams& p, device::Stream stream);
Status sample_team(const ops::SampleParams& p, int64_t logit_rows, device::Stream stream);

}  // namespace tern::cuda
