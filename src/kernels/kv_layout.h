// Lives in device/kv_layout.h, where rooms above ops may see it.
#pragma once

#include "device/kv_layout.h"  // moved
