#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/doctor/rules/rule.hpp"

/// What several rules ask about one GPU.
namespace fullwatt::doctor {

/// One Xid of the kernel log: the driver's own number for what went wrong on a GPU.
struct Xid {
  std::string bdf;
  int number = 0;
  std::string line;
};

/// The Xids of this boot with one of these numbers, oldest first.
std::vector<Xid> xids(const model::Machine& machine, std::initializer_list<int> numbers);

/// Lines of the kernel log that hold `part`.
std::vector<std::string> kernel_lines(const model::Machine& machine, std::string_view part);

/// Adds a line of the kernel log as evidence.
void saw_line(Match& match, const std::string& line);

/// Adds the first of these Xids of each GPU, and names the first GPU. False when there is none.
bool saw_xids(Match& match, const model::Machine& machine, const std::vector<Xid>& found);

/// The PCI address behind a device of NVML; one that NVML can no longer name is found by elimination. May be empty.
std::string address_of(const model::Machine& machine, const model::NvmlDevice& device);

/// Names an NVML device in the words of a match, whatever of it is known.
void name_device(Match& match, const model::Machine& machine, const model::NvmlDevice& device);

/// The first question about a device that NVML answered with this code; nothing when none was.
std::optional<std::string> answered_with(const model::NvmlDevice& device, int code);

/// Adds every device that NVML answers for with this code as evidence. False when there is none.
bool saw_code(Match& match, const model::Machine& machine, int code);

/// Whether a GPU answers NVML, ran a kernel just now and waits for no reset: what its log tells is past.
bool works_now(const model::Machine& machine, const std::string& bdf);

/// Whether these Xids are history: every GPU they name works again, and the training asked about did not end by them.
bool over(const model::Machine& machine, std::string_view id, const std::vector<Xid>& found);

/// Whether the driver, a rule or a switch shows that a GPU belongs into this machine, though none is on its bus.
bool gpu_expected(const model::Machine& machine);

/// Milliwatts as whole watts.
std::string watts(int milliwatts);

}  // namespace fullwatt::doctor
