#include "fullwatt/engine/group.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/backends/backends.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

std::string name_of(const Place& place) {
  return "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size);
}

/// What the exception that is being handled says.
std::string reason() {
  constexpr std::size_t kLongest = 300;
  try {
    throw;
  } catch (const c10::Error& error) {
    return base::printable(error.what_without_backtrace(), kLongest);
  } catch (const std::exception& error) {  // Gloo's
    return base::printable(error.what(), kLongest);
  }
}

std::unexpected<Error> not_joined(const Place& place) {
  return base::fail(Error::Kind::unavailable,
                    name_of(place) + " did not meet the others at " + base::printable(place.master, 100) + ":" +
                        std::to_string(place.port) + ": " + reason(),
                    "Are all of them started, and is that port free and open to them? MASTER_ADDR and MASTER_PORT "
                    "name another place, the same for all.");
}

std::unexpected<Error> lost(const Place& place, const std::string& why) {
  return base::fail(Error::Kind::unavailable, name_of(place) + " lost the other processes: " + why,
                    "One of them ended or stands still: its own output says why. Started again, the training goes on "
                    "from the last checkpoint.");
}

/// Where the processes find each other; of its own for every attempt, since a launcher's outlives them.
Store open_store(const Place& place, std::chrono::milliseconds timeout) {
  if (place.size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.port);
  options.isServer = place.rank == 0 && !place.is_served;
  options.numWorkers = static_cast<std::size_t>(place.size);
  options.waitWorkers = !place.is_served;
  options.timeout = timeout;
  auto store = c10::make_intrusive<c10d::TCPStore>(place.master, options);
  return c10::make_intrusive<c10d::PrefixStore>("fullwatt/" + std::to_string(place.attempt), std::move(store));
}

}  // namespace

base::Result<std::unique_ptr<Group>> Group::join(const Place& place, at::Device device, std::chrono::seconds timeout) {
  try {
    const auto store = open_store(place, timeout);
    auto backend = device.is_cuda() ? make_nccl(store, place, timeout) : make_gloo(store, place, timeout);
    if (!backend) return std::unexpected(backend.error());
    std::unique_ptr<Group> group(new Group(place, device, *std::move(backend)));
    if (const auto met = group->barrier(); !met) return std::unexpected(met.error());
    return group;
  } catch (const std::exception&) {
    return not_joined(place);
  }
}

Group::Group(const Place& place, at::Device device, c10::intrusive_ptr<c10d::Backend> backend)
    : place_(place), device_(device), backend_(std::move(backend)) {}

Group::~Group() {
  try {
    if (is_lost_)
      backend_->abort();
    else
      backend_->shutdown();
  } catch (const std::exception&) {
    is_lost_ = true;  // nobody is left to be told
  }
}

base::Result<void> Group::broadcast(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard without_gradients;
  std::vector<at::Tensor> sent;
  return attempt([&] {
    std::vector<Work> works;
    for (const auto& tensor : tensors) {
      std::vector one{tensor.detach().to(device_).contiguous()};
      works.push_back(backend_->broadcast(one));
      sent.push_back(one.front());
    }
    for (const auto& work : works) work->wait();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (sent[i].data_ptr() != tensors[i].data_ptr()) tensors[i].detach().copy_(sent[i]);
    }
  });
}

base::Result<void> Group::all_reduce(const at::Tensor& tensor) {
  const at::NoGradGuard without_gradients;
  if (const auto done = sum(tensor); !done) return done;
  tensor.div_(size());
  return {};
}

base::Result<bool> Group::any(bool here) {
  const auto count = at::full({1}, here ? 1 : 0, at::TensorOptions(device_).dtype(at::kFloat));
  if (const auto done = sum(count); !done) return std::unexpected(done.error());
  const bool is_any = count.item<float>() > 0;
  if (const auto done = check(); !done) return std::unexpected(done.error());
  return is_any;
}

base::Result<void> Group::barrier() {
  if (const auto done = any(false); !done) return std::unexpected(done.error());
  return {};
}

base::Result<void> Group::sum(const at::Tensor& tensor) {
  const auto work = begin_sum(tensor);
  if (!work) return std::unexpected(work.error());
  return end(*work);
}

base::Result<Group::Work> Group::begin_sum(const at::Tensor& tensor) {
  Work work;
  std::vector<at::Tensor> tensors{tensor};
  const auto begun = attempt([&] { work = backend_->allreduce(tensors); });
  if (!begun) return std::unexpected(begun.error());
  return work;
}

base::Result<void> Group::end(const Work& work) {
  return attempt([&] { work->wait(); });
}

template <class Exchange>
base::Result<void> Group::attempt(Exchange exchange) {
  try {
    exchange();
  } catch (const std::exception&) {
    is_lost_ = true;
    return lost(place_, reason());
  }
  return check();
}

base::Result<void> Group::check() {
  if (!device_.is_cuda()) return {};
  const auto error = backend_->getError();
  if (error == c10d::ErrorType::SUCCESS) return {};
  is_lost_ = true;
  return lost(place_, error == c10d::ErrorType::TIMEOUT ? "they did not answer in time" : "NCCL failed");
}

}  // namespace fullwatt::engine
