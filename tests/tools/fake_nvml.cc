// Stands for NVIDIA's libnvidia-ml.so.1 in tests: two GPUs, of which the second knows neither its load nor its energy.
#include <cstring>

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};

namespace {
char gpus[2];
bool second(const char* gpu) { return gpu == &gpus[1]; }
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, char** gpu) { return *gpu = &gpus[index], 0; }
int nvmlDeviceGetUUID(char* gpu, char* text, unsigned size) {
  std::strncpy(text, second(gpu) ? "GPU-2" : "GPU-1", size);
  return 0;
}
int nvmlDeviceGetUtilizationRates(char* gpu, Utilization* out) { return *out = {25, 50}, second(gpu) ? 3 : 0; }
int nvmlDeviceGetMemoryInfo(char*, Memory* out) { return *out = {8000, 6000, 2000}, 0; }
int nvmlDeviceGetPowerUsage(char*, unsigned* out) { return *out = 70'500, 0; }
int nvmlDeviceGetEnforcedPowerLimit(char*, unsigned* out) { return *out = 700'000, 0; }
int nvmlDeviceGetTotalEnergyConsumption(char* gpu, unsigned long long* out) {
  return *out = 1'234'000, second(gpu) ? 3 : 0;
}
}
