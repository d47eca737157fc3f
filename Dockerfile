# The image that configs/run, configs/serve/kubernetes.yaml and configs/serve/compose.yaml name:
# docker build -t trireme .
# CUDA is a version of NVIDIA's images. CUDA 13 needs driver 580 or newer.
ARG CUDA=13.0.1

FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
WORKDIR /trireme
COPY tools/packages.sh tools/
RUN tools/packages.sh package
COPY . .
RUN cmake --preset release && cmake --build build/release && cpack --config build/release/CPackConfig.cmake -B /package

FROM nvidia/cuda:${CUDA}-base-ubuntu24.04
# NVIDIA's packages are those of the image's CUDA; openssh-client is for mpirun, which looks for a remote shell.
# hadolint ignore=DL3008
RUN --mount=type=bind,from=build,source=/package,target=/package \
    v=${CUDA_VERSION%.*} && v=${v%.*}-${v#*.} && \
    apt-get update && \
    apt-get install -y --no-install-recommends /package/*.deb openmpi-bin openssh-client curl ca-certificates \
        "libcublas-$v" "cuda-nvrtc-$v" "libcudnn9-cuda-${v%-*}" libnccl2 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home trireme && \
    install -d -o trireme -g trireme /home/trireme/.cache
USER 10001:10001
WORKDIR /home/trireme
EXPOSE 8000
STOPSIGNAL SIGTERM
# For trireme serve --host 0.0.0.0 --port 8000; it answers while it loads, and while it restarts after the loss of a rank.
HEALTHCHECK --interval=10s --timeout=5s --retries=3 CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8000/live"]
ENTRYPOINT ["trireme"]
CMD ["--help"]
