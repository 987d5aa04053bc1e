# One image for every service of compose.yaml: what runs is the command's choice.
FROM python:3.11-slim AS build
WORKDIR /app
COPY requirements.lock pyproject.toml ./
# The lock file holds the tools of development too. uv takes from it what the program needs, with its hashes; pip
# cannot: it demands every hash of what it is given, and would install all of it.
RUN awk '/^[^ ]/ {wanted = /^uv==/} wanted' requirements.lock > uv.lock \
 && awk '/^[^ ]/ {wanted = /^setuptools==/} wanted' requirements.lock > setuptools.lock \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r uv.lock
ENV VIRTUAL_ENV=/venv
RUN python -m venv --without-pip /venv \
 && uv pip install --no-cache --require-hashes -r setuptools.lock \
 && uv pip install --no-cache --require-hashes -c requirements.lock -r pyproject.toml
COPY . .
RUN uv pip install --no-cache --no-deps --no-build-isolation -e .

FROM python:3.11-slim
# Folders that become volumes belong to the user before they do.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin holdfast \
 && install -d -o holdfast -g holdfast -m 0700 /var/lib/flower
COPY --from=build /venv /venv
COPY --from=build /app /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER holdfast
CMD ["holdfast", "--help"]
