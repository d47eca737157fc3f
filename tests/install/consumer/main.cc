// The public API from C++: the installed headers and library fit each other. usage: consumer_cxx VERSION
#include <trireme/trireme.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

int main(int argc, char **argv)
{
    if (argc != 2 || std::strcmp(argv[1], trm_version()) != 0) {
        std::fprintf(stderr, "the library is %s\n", trm_version());
        return 1;
    }
    trm_network *made = nullptr;
    if (trm_network_create(&made) != TRM_OK) {
        return 1;
    }
    std::unique_ptr<trm_network, decltype(&trm_network_destroy)> network(made, trm_network_destroy);
    trm_dims dims = {2, {2, 3}};
    trm_tensor *x = nullptr, *y = nullptr;
    if (trm_network_add_input(network.get(), "x", TRM_F32, dims, &x) != TRM_OK ||
        trm_network_add_activation(network.get(), "y", TRM_ACTIVATION_RELU, x, &y) != TRM_OK ||
        trm_network_mark_output(network.get(), y) != TRM_OK) {
        std::fprintf(stderr, "%s\n", trm_last_error());
        return 1;
    }
    trm_tensor *sum = nullptr; // refused, with the cause
    if (trm_network_add_matmul(network.get(), "sum", x, y, nullptr, false, &sum) != TRM_ERROR_INVALID_ARGUMENT ||
        std::string(trm_last_error()).find("sum") == std::string::npos) {
        return 1;
    }
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    return options.size == sizeof(options) && where.size == sizeof(where) ? 0 : 1;
}
