# syntax=docker/dockerfile:1
#
# One image for every process of the service; the command says which one it is.
#
#   docker build -t gmr-stream .                                        # CPU
#   docker build -t gmr-stream:cuda \
#     --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .  # NVIDIA GPU
#
# TORCH_INDEX is the package index that torch comes from; everything else comes from PyPI. EXTRAS
# names what of the service is in it: serve, or store or cluster, which bring that and more.
#
# The detector's loops are compiled for any processor of the architecture. Where all machines are
# known to be newer, they can be made for those, which spares the detector a third of its time:
#     --build-arg CPU_NAME=x86-64-v3 --build-arg CPU_FEATURES=+avx2,+fma

ARG PYTHON=3.12-slim-bookworm
ARG CPU_NAME=generic
ARG CPU_FEATURES=

FROM python:${PYTHON} AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=serve
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/gmr
ENV PATH=/opt/gmr/bin:$PATH
# torch alone is a layer of its own: it is by far the largest and changes least.
RUN pip install --index-url "${TORCH_INDEX}" --extra-index-url https://pypi.org/simple torch==2.13.0
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY gmr gmr
COPY core core
COPY service service
COPY clients clients
# pip compiles what it installs: the file system of a container is read-only, so nothing can later.
RUN pip install ".[${EXTRAS}]"
# Compiled loops are found again only for the processor that they were made for, by name.
ARG CPU_NAME
ARG CPU_FEATURES
ENV NUMBA_CPU_NAME=${CPU_NAME} NUMBA_CPU_FEATURES=${CPU_FEATURES}
WORKDIR /
RUN gmr compile

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="gmr-stream" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --create-home --home-dir /data --shell /usr/sbin/nologin gmr
COPY --from=build /opt/gmr /opt/gmr
ARG CPU_NAME
ARG CPU_FEATURES
ENV PATH=/opt/gmr/bin:$PATH \
    NUMBA_CPU_NAME=${CPU_NAME} \
    NUMBA_CPU_FEATURES=${CPU_FEATURES} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GMR_HOST=0.0.0.0 \
    GMR_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
# Asks the API; a container that runs only the trainer has its own check (docker-compose.yml).
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-m", "service.api.probe", "live"]
ENTRYPOINT ["gmr"]
CMD ["serve"]
