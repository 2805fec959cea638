// JSON for people: numbers as they are usually written, one entry per line where that helps.
#pragma once

#include <string>

#include "json/json.h"

namespace tern::app {

// One line.
std::string json_line(const json::Value& value);
// Objects of the two outermost levels on lines of their own.
std::string json_page(const json::Value& value);

}  // namespace tern::app
