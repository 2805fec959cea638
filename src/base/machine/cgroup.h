// Control groups of this process, version 2 and 1, and the small files of /proc and /sys that hold one value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tern {

// Nothing where the file or a value cannot be read.
std::optional<std::string> read_first_line(const std::string& path);
std::optional<uint64_t> parse_number(std::string_view text);
std::optional<uint64_t> read_number(const std::string& path);

// Calls `visit` with the folder of this process's group and with each of its parents up to the mount point: for version
// 2 with `controller` empty, else for the hierarchy of that controller ("cpu", "memory"). Inside a container the path
// may name a folder that is not visible; the mount point itself is then the group. `root` is put before /proc and /sys.
void for_each_cgroup(const std::string& root, std::string_view controller,
                     const std::function<void(const std::string& folder)>& visit);

}  // namespace tern
