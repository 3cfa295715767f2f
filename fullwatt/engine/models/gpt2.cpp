// A transformer like GPT-2 that foretells the next token. Its parameters have the names and first values of Hugging
// Face's GPT2LMHeadModel; the weights of c_attn, c_proj and c_fc are [outputs, inputs], which is transposed there.

#include <cmath>
#include <limits>

#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "fullwatt/engine/cross_entropy.hpp"
#include "fullwatt/engine/recomputed.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

namespace nn = torch::nn;

nn::LayerNorm norm(std::int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}));
}

/// With its bias in the kernel of the product: nn::Linear adds it by one of its own to all that has more than two
/// dimensions.
at::Tensor through(const nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

/// Every position looks at itself and at those before it.
struct AttentionImpl : nn::Module {
  explicit AttentionImpl(const ModelConfig& config)
      : c_attn(register_module("c_attn", nn::Linear(config.embedding, 3 * config.embedding))),
        c_proj(register_module("c_proj", nn::Linear(config.embedding, config.embedding))),
        heads(config.heads),
        dropout(config.dropout) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto parts = through(c_attn, x).chunk(3, 2);
    const auto attended = at::scaled_dot_product_attention(by_heads(parts[0]), by_heads(parts[1]), by_heads(parts[2]),
                                                           {}, is_training() ? dropout : 0, /*is_causal=*/true);
    return at::dropout(through(c_proj, attended.transpose(1, 2).reshape(x.sizes())), dropout, is_training());
  }
  /// Where it lies: [batch, heads, positions, width of a head].
  at::Tensor by_heads(const at::Tensor& part) const { return part.unflatten(2, {heads, -1}).transpose(1, 2); }

  nn::Linear c_attn;  ///< queries, keys and values at once
  nn::Linear c_proj;
  std::int64_t heads;
  double dropout;
};
TORCH_MODULE(Attention);

struct MlpImpl : nn::Module {
  explicit MlpImpl(const ModelConfig& config)
      : c_fc(register_module("c_fc", nn::Linear(config.embedding, 4 * config.embedding))),
        c_proj(register_module("c_proj", nn::Linear(4 * config.embedding, config.embedding))),
        dropout(config.dropout) {}

  at::Tensor forward(const at::Tensor& x) {
    return at::dropout(through(c_proj, at::gelu(through(c_fc, x), "tanh")), dropout, is_training());
  }

  nn::Linear c_fc;
  nn::Linear c_proj;
  double dropout;
};
TORCH_MODULE(Mlp);

struct BlockImpl : nn::Module {
  explicit BlockImpl(const ModelConfig& config)
      : ln_1(register_module("ln_1", norm(config.embedding))),
        attn(register_module("attn", Attention(config))),
        ln_2(register_module("ln_2", norm(config.embedding))),
        mlp(register_module("mlp", Mlp(config))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto attended = x + attn->forward(ln_1->forward(x));
    return attended + mlp->forward(ln_2->forward(attended));
  }

  nn::LayerNorm ln_1;
  Attention attn;
  nn::LayerNorm ln_2;
  Mlp mlp;
};
TORCH_MODULE(Block);

struct TransformerImpl : nn::Module {
  explicit TransformerImpl(const ModelConfig& config)
      : wte(register_module("wte", nn::Embedding(config.vocabulary, config.embedding))),
        wpe(register_module("wpe", nn::Embedding(config.context, config.embedding))),
        h(register_module("h", nn::ModuleList())),
        ln_f(register_module("ln_f", norm(config.embedding))),
        dropout(config.dropout) {
    for (std::int64_t i = 0; i < config.layers; ++i) h->push_back(Block(config));
  }

  at::Tensor forward(const at::Tensor& tokens) {
    const auto length = tokens.size(1);
    TORCH_CHECK(length <= wpe->weight.size(0), "a sample has ", length + 1, " tokens; model.context must be at least ",
                length);
    auto x = at::dropout(wte->forward(tokens) + wpe->weight.slice(0, 0, length), dropout, is_training());
    for (const auto& module : *h) {
      auto& block = *module->as<Block>();
      x = is_recomputed ? recomputed(block, x, /*draws=*/dropout > 0) : block.forward(x);
    }
    return ln_f->forward(x);
  }

  nn::Embedding wte;  ///< of tokens
  nn::Embedding wpe;  ///< of positions
  nn::ModuleList h;
  nn::LayerNorm ln_f;
  double dropout;
  bool is_recomputed = false;  ///< activations of blocks in backward
};
TORCH_MODULE(Transformer);

struct Gpt2 : nn::Module {
  explicit Gpt2(const ModelConfig& config) : transformer(register_module("transformer", Transformer(config))) {
    constexpr double kDeviation = 0.02;
    // Every layer adds to the sum twice, which is not to grow with their number.
    const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
    for (const auto& item : named_parameters()) {
      const auto& name = item.key();
      if (name.ends_with(".bias")) nn::init::zeros_(item.value());
      if (item.value().dim() == 2)
        nn::init::normal_(item.value(), 0, name.ends_with("c_proj.weight") ? residual : kDeviation);
    }
  }

  /// A score for every token of the vocabulary at each position. On a GPU, whose tensor cores are far slower on rows
  /// that are no multiple of kWide, tokens that there are not have one, too: −∞.
  at::Tensor forward(const at::Tensor& tokens) {
    const auto& weight = transformer->wte->weight;
    const auto x = transformer->forward(tokens);
    const auto added = weight.is_cuda() ? (kWide - weight.size(0) % kWide) % kWide : 0;
    if (added == 0) return at::linear(x, weight);
    const auto bias = at::constant_pad_nd(at::zeros({weight.size(0)}, weight.options().requires_grad(false)),
                                          {0, added}, -std::numeric_limits<double>::infinity());
    return at::linear(x, at::constant_pad_nd(weight, {0, 0, 0, added}), bias);
  }

  static constexpr std::int64_t kWide = 64;
  Transformer transformer;
};

class Gpt2Task final : public Task {
 public:
  explicit Gpt2Task(const ModelConfig& config) : network_(config), vocabulary_(config.vocabulary) {}

  nn::Module& network() override { return network_; }
  std::vector<std::string> fields() const override { return {"tokens"}; }
  std::map<std::string, std::int64_t> limits() const override { return {{"tokens", vocabulary_}}; }
  bool recompute() override { return network_.transformer->is_recomputed = true; }
  bool fuse_loss(const c10::intrusive_ptr<KernelSet>& kernels) override {
    kernels_ = kernels;
    return true;
  }
  at::Tensor loss(const Fields& batch) override {
    const auto& tokens = batch.at("tokens");
    const auto scores = network_.forward(tokens.slice(1, 0, -1));
    return cross_entropy(kernels_, scores.flatten(0, 1), tokens.slice(1, 1).flatten().to(at::kLong));
  }

 private:
  Gpt2 network_;
  std::int64_t vocabulary_;
  c10::intrusive_ptr<KernelSet> kernels_;  ///< null: torch's own
};

}  // namespace

std::unique_ptr<Task> make_gpt2(const ModelConfig& config) {
  return std::make_unique<Gpt2Task>(config);
}

}  // namespace fullwatt::engine
