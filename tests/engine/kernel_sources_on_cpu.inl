// The sources of fullwatt/engine/kernels/ for the CPU. Included for each NUMBER in a namespace of its own, since they define the same names.

namespace norm {
#include "fullwatt/engine/kernels/numbers.cu"

#include "fullwatt/engine/kernels/batch_norm.cu"
inline const std::vector<Launch> kAll{
    launch_of(batch_norm_sums),          launch_of(batch_norm_statistics),         launch_of(batch_norm_forward),
    launch_of(batch_norm_relu_forward),  launch_of(batch_norm_add_forward),        launch_of(batch_norm_add_relu_forward),
    launch_of(batch_norm_gradient_sums), launch_of(batch_norm_relu_gradient_sums), launch_of(batch_norm_add_relu_gradient_sums),
    launch_of(batch_norm_gradients),     launch_of(batch_norm_backward),           launch_of(batch_norm_relu_backward)};
}  // namespace norm

namespace loss {
#include "fullwatt/engine/kernels/numbers.cu"

#include "fullwatt/engine/kernels/cross_entropy.cu"
inline const std::vector<Launch> kAll{launch_of(cross_entropy_forward), launch_of(cross_entropy_backward)};
}  // namespace loss
